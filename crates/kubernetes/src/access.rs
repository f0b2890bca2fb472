//! How an API server is reached: as a user's kubeconfig says, or as the Pod that this runs in.

use std::path::PathBuf;

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Where the credentials of a cluster are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// None: the Pod's own, if this runs in one; else what kubectl would use.
    pub kubeconfig: Option<PathBuf>,
    /// None: the one that is current in the kubeconfig.
    pub context: Option<String>,
}

/// Why a cluster's credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        err: Box<kube::config::KubeconfigError>,
    },
    #[error("this is no Pod of a cluster, and there is no kubeconfig that kubectl would use; name one")]
    Nowhere(#[source] Box<kube::config::KubeconfigError>),
    #[error("cannot make a client for {server}")]
    Client {
        server: String,
        #[source]
        err: Box<kube::Error>,
    },
}

impl Access {
    /// A client, and the URL it asks.
    pub(crate) async fn client(&self) -> Result<(Client, String), AccessError> {
        let config = self.config().await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config)
            .map_err(|err| AccessError::Client { server: server.clone(), err: err.into() })?;
        Ok((client, server))
    }

    async fn config(&self) -> Result<Config, AccessError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(path) = &self.kubeconfig {
            let at = |err| AccessError::Kubeconfig { path: path.clone(), err: Box::new(err) };
            let kubeconfig = Kubeconfig::read_from(path).map_err(at)?;
            return Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(at);
        }
        if self.context.is_none()
            && let Ok(config) = Config::incluster()
        {
            return Ok(config);
        }
        Config::from_kubeconfig(&options).await.map_err(|err| AccessError::Nowhere(err.into()))
    }
}
