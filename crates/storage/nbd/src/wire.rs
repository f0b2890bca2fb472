//! A connection that blocks: a socket, and TLS on it where that was agreed.
//!
//! In: the socket after the handshake. Out: bytes both ways. Holds: with TLS, what was read ahead and not yet
//! decrypted; nothing while the client is silent. One thread uses it at a time; others end it with `shutdown(2)`.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustix::net::{RecvFlags, recv};
use rustls::ServerConnection;

use crate::{
    attention::{Attention, Patience, Received},
    buffers::{Buffer, BufferPool},
};

/// A client silent for this long is waited for elsewhere: its thread ends, its buffers are given back.
const SILENCE: Duration = Duration::from_millis(200);

pub(crate) struct Wire {
    socket: Arc<TcpStream>,
    tls: Option<Box<Tls>>,
    attention: Attention,
}

struct Tls {
    connection: ServerConnection,
    ahead: Option<Ahead>,
}

/// Read from the socket in one go: the TLS library would read 4 KiB at a time.
struct Ahead {
    buffer: Buffer,
    start: usize,
    end: usize,
}

impl Wire {
    /// Takes over from the handshake. The socket blocks from now on.
    pub(crate) fn new(socket: TcpStream, tls: Option<ServerConnection>) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(SILENCE))?;
        let tls = tls.map(|connection| Box::new(Tls { connection, ahead: None }));
        Ok(Self { socket: Arc::new(socket), tls, attention: Attention::default() })
    }

    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    /// The socket, if what is sent needs no encryption: a file can be sent to it without passing through this process.
    pub(crate) fn plain(&self) -> Option<&TcpStream> {
        self.tls.is_none().then_some(&*self.socket)
    }

    /// Whether there are bytes that the socket does not show any more.
    pub(crate) fn holds_bytes(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| tls.ahead.is_some() || tls.holds_plaintext())
    }

    pub(crate) fn receive(
        &mut self,
        into: &mut [u8],
        patience: Patience,
        pool: &Arc<BufferPool>,
    ) -> io::Result<Received> {
        let mut incoming = Incoming { socket: &self.socket, attention: &mut self.attention };
        match &mut self.tls {
            None => incoming.receive(into, patience),
            Some(tls) => tls.receive(incoming, into, patience, pool),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => (&*self.socket).write_all(bytes),
            Some(tls) => tls.send(&self.socket, bytes),
        }
    }
}

impl Drop for Wire {
    /// Says goodbye, if the client still listens.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            let _ = self.socket.set_nonblocking(true).and_then(|()| tls.flush(&self.socket));
        }
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Tls {
    fn receive(
        &mut self,
        mut incoming: Incoming<'_>,
        into: &mut [u8],
        patience: Patience,
        pool: &Arc<BufferPool>,
    ) -> io::Result<Received> {
        let mut filled = 0;
        while filled < into.len() {
            match self.connection.reader().read(&mut into[filled..]) {
                Ok(0) => return Ok(if filled > 0 { Received::Bytes(filled) } else { Received::End }),
                Ok(read) => {
                    filled += read;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.ahead.is_none() {
                if filled > 0 {
                    break;
                }
                // A full buffer of ciphertext may never come.
                let patience = if patience == Patience::All { Patience::First } else { patience };
                let mut buffer = pool.take();
                match incoming.receive(&mut buffer, patience)? {
                    Received::Bytes(end) => self.ahead = Some(Ahead { buffer, start: 0, end }),
                    nothing => return Ok(nothing),
                }
            }
            self.decrypt(incoming.socket)?;
        }
        Ok(Received::Bytes(filled))
    }

    fn holds_plaintext(&mut self) -> bool {
        self.connection.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    /// Decrypts some of what was read ahead.
    fn decrypt(&mut self, socket: &TcpStream) -> io::Result<()> {
        let Some(ahead) = &mut self.ahead else { return Ok(()) };
        ahead.start += self.connection.read_tls(&mut &ahead.buffer[ahead.start..ahead.end])?;
        if ahead.start == ahead.end {
            self.ahead = None;
        }
        let processed = self.connection.process_new_packets();
        // An answer of the TLS layer itself: a renewed key, or an alert that says what is wrong.
        self.flush(socket)?;
        processed.map_err(io::Error::other)?;
        Ok(())
    }

    fn send(&mut self, socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.connection.writer().write(bytes)?;
            bytes = &bytes[taken..];
            self.flush(socket)?;
        }
        Ok(())
    }

    fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut socket)?;
        }
        Ok(())
    }
}

/// The receiving side of the socket.
struct Incoming<'a> {
    socket: &'a TcpStream,
    attention: &'a mut Attention,
}

impl Incoming<'_> {
    fn receive(&mut self, into: &mut [u8], patience: Patience) -> io::Result<Received> {
        match patience {
            Patience::First => self.attention.wait(|patience| receive(self.socket, into, patience)),
            Patience::None | Patience::All => receive(self.socket, into, patience),
        }
    }
}

fn receive(socket: &TcpStream, into: &mut [u8], patience: Patience) -> io::Result<Received> {
    let flags = match patience {
        Patience::None => RecvFlags::DONTWAIT,
        Patience::First => RecvFlags::empty(),
        Patience::All => RecvFlags::WAITALL,
    };
    loop {
        return match recv(socket, &mut *into, flags) {
            Ok((0, _)) => Ok(Received::End),
            Ok((read, _)) => Ok(Received::Bytes(read)),
            Err(rustix::io::Errno::AGAIN) => Ok(Received::Silence),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}
