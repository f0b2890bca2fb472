//! A thread for each session that has work.
//!
//! In: a session. Out: how it ended. A session blocks in system calls, which is the fastest way to serve a client that
//! talks and the dearest way to wait for one that does not: a silent client is waited for here, by the runtime, where
//! a thousand of them cost nothing. To end a session its socket is shut down, which ends every call on it.

use std::{
    io,
    net::{Shutdown, TcpStream},
    sync::Arc,
    thread,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::oneshot,
};

use crate::{
    session::{Rest, Session, SessionError},
    talking::Talking,
};

/// More than a session needs, and only touched pages cost anything.
const STACK: usize = 256 << 10;

/// Why a session ended.
pub(crate) enum End {
    /// The client left.
    Left,
    /// It was told to stop.
    Stopped,
}

/// Serves until the client leaves or `stop` comes. No thread of the session is left when this returns.
pub(crate) async fn serve(
    mut session: Session,
    talking: &Talking,
    stop: impl Future<Output = ()>,
) -> Result<End, SessionError> {
    let socket = Cut(Arc::clone(session.socket()));
    tokio::pin!(stop);
    loop {
        let mut ended = run(session, talking.clone())?;
        let (rest, rested) = tokio::select! {
            ended = &mut ended => ended,
            () = &mut stop => {
                socket.cut();
                let _ = ended.await;
                return Ok(End::Stopped);
            }
        }
        .map_err(|_| io::Error::other("the session's thread panicked"))?;
        if rest? == Rest::Over {
            return Ok(End::Left);
        }
        session = rested;
        #[expect(deprecated, reason = "the descriptor is a socket's own, and stays open as long as its Arc")]
        let readiness = AsyncFd::with_interest(Arc::clone(&socket.0), Interest::READABLE)?;
        tokio::select! {
            ready = readiness.readable() => { let _ready = ready?; }
            () = &mut stop => return Ok(End::Stopped),
        }
    }
}

type Ended = (Result<Rest, SessionError>, Session);

/// Starts a thread that runs the session and gives it back.
fn run(mut session: Session, talking: Talking) -> io::Result<oneshot::Receiver<Ended>> {
    let (ended_tx, ended_rx) = oneshot::channel();
    thread::Builder::new().name("nbd-session".to_owned()).stack_size(STACK).spawn(move || {
        let place = talking.begin();
        let rest = session.run();
        drop(place);
        let _ = ended_tx.send((rest, session));
    })?;
    Ok(ended_rx)
}

/// Shuts the socket down when it goes, so that no thread outlives the server's interest in it.
struct Cut(Arc<TcpStream>);

impl Cut {
    fn cut(&self) {
        // A socket that is not connected any more needs no cutting.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.cut();
    }
}
