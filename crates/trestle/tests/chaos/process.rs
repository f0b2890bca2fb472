//! A program of the lab that can be killed, halted and started again.

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use testkit::namespaces::Namespace;

/// Gone when dropped, however it is.
pub struct Process {
    pub name: String,
    /// What it writes, over all its lives.
    pub log: PathBuf,
    namespace: String,
    command: Vec<String>,
    child: Option<Child>,
}

impl Process {
    /// Not started yet.
    pub fn new(name: &str, log: PathBuf, namespace: &Namespace, command: &[&str]) -> Self {
        let command = command.iter().map(ToString::to_string).collect();
        Self { name: name.to_owned(), log, namespace: namespace.name.clone(), command, child: None }
    }

    /// Another program where this one runs.
    pub fn beside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]);
        command
    }

    pub fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let child = self
            .beside(&self.command[0])
            .args(&self.command[1..])
            .env("TRESTLE_LOG", "info,rustls=error")
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| panic!("{}: {error}", self.name)));
    }

    /// As a power cut does. `ip netns exec` becomes the program it runs, so its process is the program's.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `STOP`, `CONT`, `TERM`.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let ended = self.child.take().expect("it runs").wait().unwrap();
        assert!(ended.success(), "{} stops: {ended}\n{}", self.name, self.tail(20));
    }

    /// Whether it has ended though nobody ended it.
    pub fn ended(&mut self) -> bool {
        let ended = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
        if ended {
            self.child = None;
        }
        ended
    }

    /// The last lines it wrote.
    pub fn tail(&self, lines: usize) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut tail: Vec<_> = log.lines().rev().take(lines).collect();
        tail.reverse();
        tail.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
