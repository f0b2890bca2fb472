//! What takes a processor for a while is done by few at a time, beside the engine.

use drivers::blocking;
use policy::survey::TooManyPairs;
use tokio::sync::Semaphore;
use tonic::Code;

use crate::failure::Failure;

/// Matrices, maps and trials that are worked out at the same time.
static TURNS: Semaphore = Semaphore::const_new(2);

/// Works something out: each may take a processor for a while.
pub async fn in_turn<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TooManyPairs> + Send + 'static,
) -> Result<T, Failure> {
    let turn = TURNS.acquire().await.expect("nobody closes it");
    let found = blocking(move || {
        // Kept to the end of the work, which a caller that hangs up does not stop.
        let _turn = turn;
        work()
    });
    found.await.map_err(|err| Failure::from_error(Code::ResourceExhausted, &err))
}
