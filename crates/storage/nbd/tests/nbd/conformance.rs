//! The suite every backend passes, with qemu-io as the consumer.

use std::{collections::HashMap, sync::Mutex};

use async_trait::async_trait;
use storage_backend::testing::{Subject, conforms};
use storage_nbd::NbdBackend;
use storage_provider::{ConnectionItem, ConsumerId};

use crate::world::{World, run, world, write_certificates};

struct NbdSubject {
    world: World,
    stored: Mutex<HashMap<ConsumerId, u64>>,
}

#[async_trait]
impl Subject for NbdSubject {
    type Backend = NbdBackend;

    fn backend(&self) -> &NbdBackend {
        &self.world.backend
    }

    async fn store(&self, consumer: ConsumerId, details: &[ConnectionItem], bytes: u64) -> bool {
        let secret = &details.iter().find(|item| item.name == "nbd-client").unwrap().data;
        let dir = write_certificates(
            self.world.dir.path(),
            "subject",
            &secret["ca"],
            &secret["cert"],
            &secret["key"],
        );
        let offset = {
            let mut stored = self.stored.lock().unwrap();
            let offset = stored.entry(consumer).or_default();
            *offset += bytes;
            *offset - bytes
        };
        let mut args = self.world.qemu(&dir, "data");
        args.extend(["-c".to_owned(), format!("write -P 7 {offset} {bytes}")]);
        let output = run("qemu-io", &args).await;
        String::from_utf8_lossy(&output.stdout).contains("wrote")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nbd_backend_conforms() {
    conforms(&NbdSubject { world: world().await, stored: Mutex::default() }).await;
}
