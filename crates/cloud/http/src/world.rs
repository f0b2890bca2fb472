//! What a plugin is told of the world, and the client that it opens with that.

use std::{path::Path, sync::Arc};

use cloud_api::CloudError;

use crate::{
    Client, Clock, Dialect, HttpTransport, Parts, Patience, Rates, Recorder, Signer, SystemClock, Transport,
    auth::{Bearer, Environment, FixedToken, TokenSource},
};

/// What a plugin is told of the world. Told nothing, it has the process's environment and the machine's clock, and keeps no
/// record.
#[derive(Clone, Default)]
pub struct World {
    pub environment: Environment,
    pub clock: Option<Arc<dyn Clock>>,
    pub recorder: Option<Arc<dyn Recorder>>,
}

impl Client {
    /// Over the network, trusting what the machine trusts or a CA instead. `signer` is given what it needs to get its
    /// credentials: the environment, a transport of its own, and the clock.
    pub fn open<S: Signer + 'static>(
        cloud: &str,
        world: World,
        ca: Option<&Path>,
        dialect: impl Dialect + 'static,
        rates: Rates,
        signer: impl FnOnce(Environment, Arc<dyn Transport>, Arc<dyn Clock>) -> S,
    ) -> Result<Self, CloudError> {
        let transport =
            || HttpTransport::new(ca).map_err(|err| CloudError::invalid(format!("{cloud}: {err}")));
        let clock = world.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let signer = signer(world.environment, Arc::new(transport()?), Arc::clone(&clock));
        Ok(Self::new(Parts {
            transport: Arc::new(transport()?),
            signer: Arc::new(signer),
            dialect: Arc::new(dialect),
            clock,
            recorder: world.recorder,
            rates,
            patience: Patience::default(),
        }))
    }

    /// The same for a cloud that takes bearer tokens: a given one as it is, or those of a source.
    pub fn bearing<T: TokenSource + 'static>(
        cloud: &str,
        world: World,
        ca: Option<&Path>,
        dialect: impl Dialect + 'static,
        rates: Rates,
        given: Option<String>,
        source: impl FnOnce(Environment, Arc<dyn Transport>, Arc<dyn Clock>) -> T,
    ) -> Result<Self, CloudError> {
        Self::open(cloud, world, ca, dialect, rates, |environment, transport, clock| {
            let source: Arc<dyn TokenSource> = match given {
                Some(token) => Arc::new(FixedToken(token)),
                None => Arc::new(source(environment, transport, Arc::clone(&clock))),
            };
            Bearer::new(source, clock)
        })
    }
}
