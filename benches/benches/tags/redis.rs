//! A redis-server of our own on loopback, and the few words of its protocol that the peer needs.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub(crate) struct Redis {
    server: Child,
    stream: BufReader<TcpStream>,
    _dir: TempDir,
}

impl Redis {
    /// Starts a server without persistence. `None`: there is no such program.
    pub(crate) fn start() -> io::Result<Option<Self>> {
        let dir = TempDir::new()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .arg("--dir")
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut server = match command.spawn() {
            Ok(server) => server,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err),
        };
        match connect(port) {
            Ok(stream) => Ok(Some(Self { server, stream: BufReader::new(stream), _dir: dir })),
            Err(err) => {
                server.kill()?;
                server.wait()?;
                Err(err)
            }
        }
    }

    /// Sends one command and waits for its answer: one text, or several for an array.
    pub(crate) fn send(&mut self, words: &[&str]) -> io::Result<Vec<String>> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(command.as_bytes())?;
        let head = self.line()?;
        match (head.get(..1), head.get(1..)) {
            (Some("*"), Some(count)) => (0..number(count)?).map(|_| self.item()).collect(),
            _ => Ok(vec![self.text(head)?]),
        }
    }

    fn item(&mut self) -> io::Result<String> {
        let head = self.line()?;
        self.text(head)
    }

    fn text(&mut self, head: String) -> io::Result<String> {
        match (head.get(..1), head.get(1..)) {
            (Some("+" | ":"), Some(text)) => Ok(text.to_owned()),
            (Some("$"), Some(length)) => {
                let mut text = vec![0; number(length)? + 2];
                self.stream.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                String::from_utf8(text).map_err(io::Error::other)
            }
            _ => Err(io::Error::other(format!("redis answered {head}"))),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Nothing is left to do with an error: the process is ours and about to be forgotten.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let started = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(err) if started.elapsed() > Duration::from_secs(10) => return Err(err),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().map_err(|_| io::Error::other(format!("redis announced a length of {text}")))
}
