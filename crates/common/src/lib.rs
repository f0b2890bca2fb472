//! Small things that many rooms need and that are nobody's subject: an error and its causes as one line ([`chain`]), how
//! long to wait before the next try ([`Backoff`]), bytes as
//! hexadecimal text ([`hex`]), the newest changes for readers that must see each ([`History`]). Pure, and without dependencies.
//! Not here: anything that knows a noun of the product (`model`), files (`files`), tasks (`life`).

mod backoff;
mod error;
mod hex;
mod history;

pub use backoff::Backoff;
pub use error::chain;
pub use hex::hex;
pub use history::{Bounds, History};
