//! Wall clocks of processes that a test sets: `clock.c`, loaded before the C library. The monotonic clocks go on, as they do
//! when a real clock is set.

use std::{path::PathBuf, process::Command};

/// Clocks that can be set.
pub struct Clocks {
    library: PathBuf,
    dir: tempfile::TempDir,
}

impl Clocks {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("clock.c"), dir.path().join("clock.so"));
        std::fs::write(&source, include_str!("clock.c")).unwrap();
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(made.expect("a C compiler is needed: install gcc").success());
        Self { library, dir }
    }

    fn file(&self, whose: &str) -> PathBuf {
        self.dir.path().join(whose)
    }

    /// From the next time it is read, the clock is off by this many seconds.
    pub fn set(&self, whose: &str, seconds: i64) {
        let new = self.file("new");
        std::fs::write(&new, seconds.to_string()).unwrap();
        std::fs::rename(new, self.file(whose)).unwrap();
    }

    /// For the process that is to have this clock.
    pub fn wear(&self, command: &mut Command, whose: &str) {
        command.env("LD_PRELOAD", &self.library).env("TRESTLE_LAB_CLOCK", self.file(whose));
    }

    /// What a process that has this clock takes for the time.
    pub fn shown(&self, whose: &str) -> i64 {
        let mut date = Command::new("date");
        self.wear(date.arg("+%s"), whose);
        String::from_utf8_lossy(&date.output().unwrap().stdout).trim().parse().unwrap()
    }
}
