//! Random stories in virtual time: wishes come and go in bursts, clouds and store fail, the orchestrator is killed,
//! somebody else changes the clouds; and whenever things have come to rest, what is permitted is reachable, nothing
//! else is, and nothing is left that nobody uses.
//!
//! Between the rests a packet may pass only if something asked for since the last rest permits it.
//!
//! `TRESTLE_STORIES` says how many are told (`TRESTLE_STORY` which one alone, to look at a failure).

mod model;
mod teller;

use std::sync::atomic::{AtomicU64, Ordering};

use teller::Teller;

/// Stories told where nobody says how many.
const STORIES: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn tell(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async move { Teller::new(seed).await.tell().await });
}

#[test]
fn random_stories_end_as_the_naive_model_says() {
    if let Some(seed) = number("TRESTLE_STORY") {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
        return tell(seed);
    }
    let stories = number("TRESTLE_STORIES").unwrap_or(STORIES);
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= stories {
                        return;
                    }
                    if let Err(panic) = std::panic::catch_unwind(|| tell(seed)) {
                        eprintln!("the story of TRESTLE_STORY={seed} ends badly");
                        next.store(stories, Ordering::Relaxed);
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
    eprintln!("{stories} stories told");
}
