//! Who may call what.
//!
//! In: a connection's certificate, a request's bearer token, the operation it names. Out: the caller, or a
//! refusal. Holds: the tokens and certificates the store knows, mirrored. Every operation has its line in
//! [`table`]; one that has none is refused.

mod caller;
pub mod changes;
mod credentials;
mod descent;
pub mod gate;
mod issue;
pub mod join;
mod recorded;
pub mod session;
mod sweep;
pub mod table;
pub mod tenure;

pub use caller::{Caller, Credential, Peer, PeerCertificate, Proof, identity};
pub use credentials::{CertificateRecord, Credentials, CredentialsError, NewToken, TokenRecord};
pub use descent::Made;
