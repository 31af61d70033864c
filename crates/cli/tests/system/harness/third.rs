//! A third host: one more server, with a link to the client's and one to the first server's.

use std::process::Command;
use std::time::Duration;

use super::world::{ip, within};
use super::{Server, World, run, run_ok};

/// Where the client reaches it.
pub const FAR_FROM_CLIENT: &str = "10.79.0.1";
/// The name of its server.
const FAR_NAME: &str = "far";

/// Where the first server reaches it.
const FAR_FROM_SERVER: &str = "10.78.0.1";
/// Its link to the first server, and the interface that either has there.
const TO_SERVER: &str = "far0";
/// The client's interface to it, by the number under which the world counts it.
const CLIENT_LINK: u8 = 8;

const QUICK: Duration = Duration::from_secs(60);

/// The host. It goes away with this.
#[derive(Debug)]
pub struct Third {
    host: String,
}

impl Third {
    /// Makes it, and its links.
    pub fn add(world: &World, mtu: u32) -> Third {
        let third = Third { host: format!("sanwire-t{}", world.scratch.label) };
        let host = third.host.as_str();
        ip(&["netns", "add", host]);
        ip(&["-n", host, "link", "set", "lo", "up"]);
        let client_link = format!("lan{CLIENT_LINK}");
        let mtu = mtu.to_string();
        for (other, interface, own, theirs) in [
            (world.server.as_str(), TO_SERVER, FAR_FROM_SERVER, "10.78.0.2"),
            (world.client.as_str(), client_link.as_str(), FAR_FROM_CLIENT, "10.79.0.2"),
        ] {
            let pair = ["type", "veth", "peer", "name", interface, "netns", other];
            ip(&[&["link", "add", interface, "netns", host][..], &pair].concat());
            for (host, address) in [(host, own), (other, theirs)] {
                ip(&["-n", host, "link", "set", interface, "mtu", &mtu, "up"]);
                ip(&["-n", host, "address", "add", &format!("{address}/24"), "dev", interface]);
            }
        }
        third
    }

    /// Serves volumes there, over IP and the link to the first server.
    pub fn serve(&self, world: &World, volumes: &[&str], options: &[&str]) -> Server {
        let mut command = within(&self.host, env!("CARGO_BIN_EXE_sanwire"));
        command.args(["serve", "--name", FAR_NAME]).args(options);
        for volume in volumes {
            command.args(["--volume", volume]);
        }
        Server::spawn(&command, &world.state("far"), world.scratch.path("far.log"))
    }

    /// From now on nothing arrives here that the first server sends: it seems not to be there.
    pub fn ignore_server(&self, world: &World) {
        let rules = format!(
            "table inet ignoring {{\n chain arriving {{\n type filter hook input priority 0;\n iifname \"{TO_SERVER}\" drop\n }}\n}}\n"
        );
        let file = world.scratch.path("ignoring.nft");
        std::fs::write(&file, rules).expect("the rules can be written");
        let mut nft = within(&self.host, "nft");
        nft.arg("-f").arg(&file);
        run_ok(nft, QUICK);
    }

    /// Takes the link between the two servers down, or up again.
    pub fn set_link(&self, state: &str) {
        ip(&["-n", &self.host, "link", "set", TO_SERVER, state]);
    }

    /// Bytes that went over the link between the two servers.
    pub fn carried_bytes(&self) -> u64 {
        let mut show = Command::new("ip");
        show.args(["-n", &self.host, "-j", "-s", "link", "show", "dev", TO_SERVER]);
        let told: serde_json::Value = serde_json::from_str(&run_ok(show, QUICK)).expect("JSON");
        ["rx", "tx"].map(|way| told[0]["stats64"][way]["bytes"].as_u64().expect("a count")).iter().sum()
    }

    /// Bytes that went to the client's host and came from there, over all its links.
    pub fn carried_by_client(&self, world: &World) -> u64 {
        world.carried_bytes(0) + world.carried_bytes(CLIENT_LINK)
    }
}

impl Drop for Third {
    fn drop(&mut self) {
        let mut delete = Command::new("ip");
        delete.args(["netns", "delete", &self.host]);
        run(delete, QUICK);
    }
}
