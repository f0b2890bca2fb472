//! The options of a client's socket.

use std::{io, time::Duration};

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A client whose machine is gone is noticed after this long without a sign of life.
const SILENCE: Duration = Duration::from_secs(60);

/// Replies leave at once, and peers that are gone are noticed.
pub(crate) fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENCE)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(socket, 6)?;
    // Also when the peer is alive but takes no replies.
    sockopt::set_tcp_user_timeout(socket, u32::try_from(2 * SILENCE.as_millis()).unwrap_or(u32::MAX))?;
    if socket.peer_addr()?.ip().to_canonical().is_loopback() {
        // Nobody shares this line: an algorithm that spaces packets out, where that is the machine's default (BBR), would
        // only make processes of one machine wait for each other.
        sockopt::set_tcp_congestion(socket, "reno")?;
    }
    Ok(())
}
