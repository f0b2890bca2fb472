//! The node itself: how it is, what is kept of it, and where its controllers are.

use std::{collections::BTreeSet, net::SocketAddr};

use tracing::info;

use super::Worker;
use crate::host::HostRecord;

impl Worker {
    /// What is found is told; whether policies restrict the node is kept, for when nothing else is known any more.
    pub(super) fn look_at_host(&mut self) {
        self.host = self.parts.iter_mut().find_map(|part| part.host());
        let Some(host) = self.host.as_ref().filter(|_| self.known) else { return };
        let (input, output) = (host.input, host.output);
        let record = HostRecord { input, output, controllers: self.pods.host.controllers.clone() };
        if self.pods.host != record {
            self.pods.host = record;
            self.keep_or_warn();
        }
    }

    /// The controllers are at these addresses; true in the kernel on return. Those of another time are of no use.
    pub fn controllers(&mut self, controllers: BTreeSet<SocketAddr>) {
        if self.pods.host.controllers == controllers {
            return;
        }
        info!(?controllers, "controllers, which the node reaches whatever policies say");
        self.pods.host.controllers = controllers;
        self.endpoints_due = true;
        self.settle();
        self.keep_or_warn();
    }
}
