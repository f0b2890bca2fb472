//! Kill -9 at each journaled step of a link's set-up, by the controller's own log of its steps.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use super::{Lab, SECONDS};

/// What the log says when a step's record is about to be written, and when its last one was.
const MARKS: [&str; 3] = ["a step starts", "a link carries packets", "a step has ended"];

struct Log(PathBuf);

impl Log {
    fn marks(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().filter(|line| MARKS.iter().any(|mark| line.contains(mark))).map(str::to_owned).collect()
    }
}

/// The controller is killed as soon as so many marks of the set-up are in its log. What it was; none if there were not
/// so many.
fn killed_at(number: usize) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let log = Log(dir.path().join("log"));
    let into_log = format!("exec \"$@\" 2>>{}", log.0.display());
    let prefix = ["env", "TRESTLE_LOG=orchestrator=debug", "sh", "-c", &into_log, "sh"];
    let mut lab = Lab::with(&prefix, &["--cloud", "a=linux", "--cloud", "b=linux"]);
    lab.ok("resource create a.web");
    lab.ok("resource create b.db");
    let db = lab.address("b.db");
    lab.until("everything is at rest", |_| {
        let marks = log.marks();
        let count = |mark| marks.iter().filter(|line| line.contains(mark)).count();
        count(MARKS[0]) == count(MARKS[2])
    });
    let before = log.marks().len();
    lab.ok("rule add a.web --ping default.b.db --detach");
    lab.ok("rule add b.db --ping default.a.web --detach");
    let start = Instant::now();
    let mark = loop {
        if let Some(mark) = log.marks().get(before + number) {
            break mark.clone();
        }
        if lab.ok("job list").contains("running") || start.elapsed() < Duration::from_secs(2) {
            assert!(start.elapsed() < SECONDS, "the jobs end");
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        return None;
    };
    lab.crash();
    let took = lab.until("it goes on where it was", |lab| lab.pings("a.web", &db));
    println!(
        "killed at {}: packets flow {took:?} after the restart",
        &mark[mark.find("a step").unwrap_or(0)..]
    );
    lab.until("all tunnels are up", |lab| lab.ok("link list").contains("2/2 2/2"));
    assert_eq!(lab.ok("check"), "Everything is as it was made.\n");
    lab.ok("resource delete b.db");
    lab.ok("resource delete a.web");
    lab.until("nothing is left", |lab| lab.left().is_empty());
    Some(mark)
}

#[test]
#[ignore = "long; `make lab` runs it"]
fn killed_at_each_step_of_a_link_it_goes_on() {
    let steps = (0..100).take_while(|number| killed_at(*number).is_some()).count();
    println!("killed at {steps} steps");
    assert!((8..100).contains(&steps), "two gateways, a link and two lists have more steps than {steps}");
}
