//! Three members of etcd and three controllers on them, in the fabric of a lab; and a cloud that only they reach.

use std::{fs, os::unix::fs::DirBuilderExt as _, path::PathBuf};

use super::{
    client::Clients,
    process::Process,
    world::{CONTROLLER, World, eventually},
};

pub const TRESTLE: &str = env!("CARGO_BIN_EXE_trestle");
/// Members, and controllers.
pub const SIZE: usize = 3;

pub struct Site {
    pub controllers: Vec<Process>,
    pub members: Vec<Process>,
    _cloud: Process,
    dir: PathBuf,
}

impl Site {
    /// All of it runs, and the lab's commands go to the first controller.
    pub fn start(world: &mut World) -> Self {
        let dir = world.dir.path().to_owned();
        let mut members: Vec<_> = (0..SIZE).map(|index| member(world, index)).collect();
        members.iter_mut().for_each(Process::start);
        let cloud = ["plugin", "fake", "--name", "far", "--listen", "127.0.0.1:9000", "--plaintext-loopback"];
        let command: Vec<_> = [TRESTLE].into_iter().chain(cloud).collect();
        let mut cloud = Process::new("the cloud", dir.join("cloud.log"), &world.fabric, &command);
        cloud.start();
        world.servers = (0..SIZE).map(url).collect();
        let mut site = Self { controllers: Vec::new(), members, _cloud: cloud, dir };
        for index in 0..SIZE {
            site.add_controller(world, index);
        }
        site.lead_commands_to(0);
        site
    }

    /// The first makes the CA and the token; the others are given both.
    fn add_controller(&mut self, world: &World, index: usize) {
        let home = self.home(index);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(home.join("data/pki")).unwrap();
        if index > 0 {
            for file in ["data/pki/ca.pem", "data/pki/ca.key", "data/admin.token"] {
                fs::copy(self.home(0).join(file), home.join(file)).unwrap();
            }
        }
        let endpoints: Vec<_> = (0..SIZE).map(|member| format!("\"{}\"", client_url(member))).collect();
        let config = format!(
            "data_dir: {data}\nlisten: {{http: \"127.0.0.1:{http}\", grpc: \"{CONTROLLER}:{grpc}\", \
             watch: \"127.0.0.1:{watch}\"}}\nstore: {{etcd: {{endpoints: [{endpoints}]}}}}\n\
             clouds: [{{name: far, remote: {{url: \"http://127.0.0.1:9000\"}}}}]\n",
            data = home.join("data").display(),
            http = 8080 + index,
            grpc = 8180 + index,
            watch = 8280 + index,
            endpoints = endpoints.join(", "),
        );
        fs::write(home.join("c.yaml"), config).unwrap();
        let file = home.join("c.yaml").display().to_string();
        let command = [TRESTLE, "serve", "--config", &file];
        let name = format!("controller {index}");
        let mut controller = Process::new(&name, home.join("log"), &world.fabric, &command);
        controller.start();
        self.controllers.push(controller);
        self.wait_until_it_serves(index);
    }

    #[track_caller]
    pub fn wait_until_it_serves(&mut self, index: usize) {
        let readyz = format!("https://127.0.0.1:{}/readyz", 8080 + index);
        let ca = self.home(0).join("data/pki/ca.pem");
        eventually(&format!("controller {index} serves"), || {
            // As a service manager does: a store that was away as it started is no reason to stay away.
            if self.controllers[index].ended() {
                self.controllers[index].start();
            }
            let mut curl = self.controllers[index].beside("curl");
            let answer = curl.args(["-sf", "-m", "5", "--cacert"]).arg(&ca).arg(&readyz).output().unwrap();
            match answer.status.success() {
                true => Ok(()),
                false => Err(self.controllers[index].tail(20)),
            }
        });
    }

    pub fn home(&self, index: usize) -> PathBuf {
        self.dir.join(format!("controller-{index}"))
    }

    pub fn config(&self, index: usize) -> PathBuf {
        self.home(index).join("c.yaml")
    }

    /// Which controller the lab's commands ask.
    pub fn lead_commands_to(&self, index: usize) {
        let context = serde_json::json!({
            "grpc": url(index),
            "http": format!("https://127.0.0.1:{}", 8080 + index),
            "ca": self.home(index).join("data/pki/ca.pem"),
            "token_file": self.home(index).join("data/admin.token"),
        });
        fs::write(self.dir.join("context.json"), context.to_string()).unwrap();
    }

    /// For tasks of a runtime in the fabric.
    pub fn clients(&self) -> Clients {
        let ca = fs::read_to_string(self.home(0).join("data/pki/ca.pem")).unwrap();
        let token = fs::read_to_string(self.home(0).join("data/admin.token")).unwrap();
        Clients::new(&(0..SIZE).map(url).collect::<Vec<_>>(), &ca, token.trim())
    }
}

/// Where a controller is for clients and nodes.
pub fn url(index: usize) -> String {
    format!("https://{CONTROLLER}:{}", 8180 + index)
}

pub fn client_url(member: usize) -> String {
    format!("http://127.0.0.1:{}", 2379 + 10 * member)
}

fn member(world: &World, index: usize) -> Process {
    let peer = |index: usize| format!("http://127.0.0.1:{}", 2380 + 10 * index);
    let (name, client, mine) = (format!("m{index}"), client_url(index), peer(index));
    let data = world.dir.path().join(&name).display().to_string();
    let all: Vec<_> = (0..SIZE).map(|index| format!("m{index}={}", peer(index))).collect();
    let command = ["etcd", "--name", &name, "--data-dir", &data, "--initial-cluster", &all.join(",")];
    let urls = ["--listen-client-urls", &client, "--advertise-client-urls", &client];
    let peers = ["--listen-peer-urls", &mine, "--initial-advertise-peer-urls", &mine];
    let command = [&command[..], &urls, &peers].concat();
    Process::new(&name, world.dir.path().join(format!("{name}.log")), &world.fabric, &command)
}
