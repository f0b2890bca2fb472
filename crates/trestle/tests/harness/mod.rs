//! The binary as a user runs it: `trestle up` in a directory of its own, and commands against it.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use tempfile::TempDir;

pub const TRESTLE: &str = env!("CARGO_BIN_EXE_trestle");

/// A running `trestle up`, stopped and removed with its data when dropped.
pub struct Up {
    child: Child,
    /// Words before every command, such as those that enter a namespace.
    prefix: Vec<String>,
    pub dir: TempDir,
    pub http: String,
    pub grpc: String,
    pub watch: String,
}

impl Up {
    pub fn start(flags: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), flags)
    }

    pub fn start_in(dir: TempDir, flags: &[&str]) -> Self {
        Self::start_as(&[], dir, flags)
    }

    /// As `start_in`, with words before this and every later command.
    pub fn start_as(prefix: &[&str], dir: TempDir, flags: &[&str]) -> Self {
        let mut dir = dir;
        // A port that is free now may be somebody else's a moment later.
        for _ in 0..5 {
            match Self::start_at(prefix, dir, flags, [free_port(), free_port(), free_port()]) {
                Ok(up) => return up,
                Err(back) => dir = back,
            }
        }
        panic!("trestle up did not start");
    }

    /// Stops it, and starts it again where it was.
    pub fn restart(self, flags: &[&str]) -> Self {
        let places = [self.http.clone(), self.grpc.clone(), self.watch.clone()];
        Self::start_at(&[], self.stop(), flags, places).unwrap_or_else(|_| panic!("trestle up did not start"))
    }

    /// The directory back if it did not start.
    fn start_at(
        prefix: &[&str],
        dir: TempDir,
        flags: &[&str],
        [http, grpc, watch]: [String; 3],
    ) -> Result<Self, TempDir> {
        let prefix: Vec<String> = prefix.iter().map(ToString::to_string).collect();
        let mut child = prefixed(&prefix)
            .args(["up", "--data-dir", "data", "--http", &http, "--grpc", &grpc])
            .args(["--watch", &watch, "--nbd", "127.0.0.1:0"])
            .args(flags)
            .env("TRESTLE_CONTEXT", dir.path().join("context.json"))
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        if stdout.lines().map_while(Result::ok).any(|line| line == "Trestle is up.") {
            return Ok(Self { child, prefix, dir, http, grpc, watch });
        }
        child.wait().unwrap();
        Err(dir)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = prefixed(&self.prefix);
        command.args(args).env("TRESTLE_CONTEXT", self.path("context.json")).current_dir(self.dir.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed; its standard output.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must fail; its exit code and standard error.
    #[track_caller]
    pub fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?} succeeded: {}", text(&output.stdout));
        assert_eq!(text(&output.stdout), "", "errors go to standard error");
        (output.status.code().unwrap(), text(&output.stderr))
    }

    /// Stops it as Ctrl-C does and hands back the directory.
    pub fn stop(mut self) -> TempDir {
        signal(&self.child, "INT");
        assert!(self.child.wait().unwrap().success(), "Ctrl-C is a clean end");
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    pub fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }
}

fn prefixed(prefix: &[String]) -> Command {
    match prefix.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(TRESTLE);
            command
        }
        None => Command::new(TRESTLE),
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process of the test's own, gone when dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `trestle serve` with a configuration of the test's own, stopped when dropped.
pub struct Serve {
    child: Child,
    pub dir: TempDir,
    pub grpc: String,
}

impl Serve {
    /// Starts it in a directory with what follows `listen` in its configuration.
    pub fn start(dir: TempDir, config: &str) -> Self {
        let grpc = free_port();
        let listen = format!("listen: {{http: 127.0.0.1:0, grpc: {grpc}, watch: 127.0.0.1:0}}");
        std::fs::write(dir.path().join("c.yaml"), format!("data_dir: data\n{listen}\n{config}")).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut serve = Command::new(TRESTLE);
        serve.args(["serve", "--config", "c.yaml"]).current_dir(dir.path()).stderr(log);
        let serve = Self { child: serve.spawn().unwrap(), dir, grpc };
        let up = (0..400).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            serve.log().contains("callers are served")
        });
        assert!(up, "{}", serve.log());
        serve
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub fn run(&self, args: &[&str]) -> Output {
        let url = format!("https://{}", self.grpc);
        let connection = ["--server", &url, "--ca", "data/pki/ca.pem", "--token-file", "data/admin.token"];
        Command::new(TRESTLE).args(connection).args(args).current_dir(self.dir.path()).output().unwrap()
    }

    /// Runs a command that must succeed; its standard output.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stderr), self.log());
        text(&output.stdout)
    }

    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Kill -9; the directory stays as it is.
    pub fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(&self.child, "TERM");
            let _ = self.child.wait();
        }
    }
}

pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
