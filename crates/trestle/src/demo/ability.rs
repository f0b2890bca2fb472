//! What this machine can play, found out by looking and trying.

use cloud_linux::namespace;

use super::{home::Home, story::Abilities};

/// What can be played; and why no namespaces can be made, if root cannot either.
pub async fn find(home: &Home) -> (Abilities, Option<String>) {
    let (namespaces, why) = match rustix::process::geteuid().is_root() {
        false => (false, None),
        true => match try_namespace(&home.namespace("try")).await {
            Ok(()) => (true, None),
            Err(why) => (false, Some(why)),
        },
    };
    let can = Abilities {
        namespaces,
        tunnels: namespaces && cloud_linux::require_vpn_programs().is_ok(),
        ping: has("ping"),
        nbd_client: has("nbdcopy"),
    };
    (can, why)
}

/// In a container root may not be allowed to.
async fn try_namespace(name: &str) -> Result<(), String> {
    namespace::ensure(name).await.map_err(|err| err.to_string())?;
    namespace::delete(name).await.map_err(|err| err.to_string())
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
