use std::future::pending;

use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(10);

async fn fault(life: &Life) -> Fault {
    timeout(SOON, life.faulted()).await.expect("a fault is seen at once")
}

fn ended(task: &'static str) -> Fault {
    Fault { task: task.into(), reason: Reason::Ended }
}

#[tokio::test]
async fn all_kinds_end_when_the_process_stops_and_nothing_is_a_fault() {
    let life = Life::default();
    life.spawn("for ever", pending());
    let stopping = life.stopping();
    life.spawn_to_end("to end", async move { stopping.cancelled().await });
    life.spawn_once("once", async {});
    let stopping = life.stopping();
    life.thread("thread", move || {
        while !stopping.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
    })
    .unwrap();
    tokio::task::yield_now().await;
    assert_eq!(life.running(), ["for ever", "thread", "to end"]);
    assert!(!life.is_stopping());
    assert_eq!(timeout(SOON, life.end()).await.unwrap(), Ok(()));
    assert!(life.running().is_empty());
}

#[tokio::test]
async fn one_that_ends_too_early_is_a_fault_and_stops_the_others() {
    for task in ["spawn", "spawn_to_end", "thread"] {
        let life = Life::default();
        life.spawn("other", pending());
        match task {
            "spawn" => life.spawn(task, async {}),
            "spawn_to_end" => life.spawn_to_end(task, async {}),
            _ => life.thread(task, || {}).unwrap(),
        }
        assert_eq!(fault(&life).await, ended(task));
        timeout(SOON, life.stopping().cancelled()).await.expect("a fault stops everything");
        assert_eq!(timeout(SOON, life.end()).await.unwrap(), Err(ended(task)));
        assert!(life.running().is_empty(), "the others have stopped");
    }
}

#[tokio::test]
async fn a_panic_is_a_fault_with_its_text_and_its_place() {
    for task in ["spawn", "spawn_to_end", "spawn_once", "thread"] {
        let life = Life::default();
        let line = line!() + 1;
        let fall = move || panic!("{task} has had {} drops", 7);
        match task {
            "spawn" => life.spawn(task, async move { fall() }),
            "spawn_to_end" => life.spawn_to_end(task, async move { fall() }),
            "spawn_once" => life.spawn_once(task, async move { fall() }),
            _ => life.thread(task, fall).unwrap(),
        }
        let fault = fault(&life).await;
        let text = fault.to_string();
        assert!(text.starts_with(&format!("{task} panicked: {task} has had 7 drops, at ")), "{text}");
        assert!(text.contains(&format!("tests.rs:{line}:")), "{text}");
        assert_eq!(timeout(SOON, life.end()).await.unwrap(), Err(fault));
    }
}

#[tokio::test]
async fn a_panic_while_stopping_is_a_fault_too() {
    let life = Life::default();
    let stopping = life.stopping();
    life.spawn_to_end("clumsy", async move {
        stopping.cancelled().await;
        panic!("dropped it");
    });
    let fault = timeout(SOON, life.end()).await.unwrap().unwrap_err();
    assert!(fault.to_string().starts_with("clumsy panicked: dropped it"), "{fault}");
}

struct Falls;

impl Drop for Falls {
    fn drop(&mut self) {
        panic!("cannot let go");
    }
}

#[tokio::test]
async fn a_panic_of_what_a_task_held_is_not_lost() {
    let life = Life::default();
    let held = Falls;
    life.spawn_once("holder", async move {
        tokio::task::yield_now().await;
        drop(held);
    });
    assert!(fault(&life).await.to_string().contains("cannot let go"));
}

/// A task that waits for another sees it gone while the panic unwinds, and may be seen to end first.
#[tokio::test]
async fn a_panic_outranks_the_ends_that_follow_from_it_and_the_first_panic_stays() {
    let life = Life::default();
    let panicked = |task: &'static str| Fault { task: task.into(), reason: Reason::Panicked("x".into()) };
    life.note(ended("waiting"));
    life.note(panicked("cause"));
    life.note(panicked("later"));
    life.note(ended("last"));
    assert_eq!(life.end().await, Err(panicked("cause")));
}

#[tokio::test]
async fn after_a_fault_the_end_does_not_wait_for_those_that_hang() {
    let life = Life::default();
    life.spawn_to_end("hangs", pending());
    life.spawn("falls", async {});
    fault(&life).await;
    let ended_with = timeout(SOON, life.end_within(Duration::from_millis(50))).await.unwrap();
    assert_eq!(ended_with, Err(ended("falls")));
    assert_eq!(life.running(), ["hangs"]);
}

#[tokio::test]
async fn a_test_kills_a_task_by_its_name() {
    let life = Life::default();
    life.spawn("one", pending());
    life.spawn("two", pending());
    assert!(!life.kill("three"));
    assert!(life.kill("two"));
    assert_eq!(fault(&life).await.task, "two");
}

#[test]
fn a_runtime_that_goes_away_under_a_task_is_a_fault() {
    let life = Life::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { life.spawn("left", pending()) });
    drop(runtime);
    assert_eq!(life.fault(), Some(ended("left")));
}
