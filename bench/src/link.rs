//! Two hosts as network namespaces, joined by a veth pair that leaves with its value.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The interface's name at both ends.
pub(crate) const INTERFACE: &str = "san0";
/// That of a second link.
pub(crate) const SECOND_INTERFACE: &str = "san1";
/// The server's address on the link.
pub(crate) const SERVER_ADDRESS: &str = "10.99.0.2";
const CLIENT_ADDRESS: &str = "10.99.0.1";
/// Those of the second link, where it has any.
pub(crate) const SECOND_SERVER_ADDRESS: &str = "10.99.1.2";
const SECOND_CLIENT_ADDRESS: &str = "10.99.1.1";

/// Which of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Client,
    Server,
}

/// The link and its two hosts.
#[derive(Debug)]
pub(crate) struct Link {
    /// Of the client and of the server; one for both when they are on the same host.
    namespaces: Vec<String>,
}

impl Link {
    /// Makes both namespaces and the link between them, without offloads.
    ///
    /// # Errors
    /// When `ip` or `ethtool` refuses: not root, no network namespaces in this kernel.
    pub(crate) fn new(mtu_bytes: u32) -> Result<Self> {
        let id = std::process::id();
        let link = Link { namespaces: vec![format!("sanwire-bench-{id}-c"), format!("sanwire-bench-{id}-s")] };
        let [client, server] = [End::Client, End::Server].map(|end| link.namespace(end));
        call("ip", &["netns", "add", client])?;
        call("ip", &["netns", "add", server])?;
        let ends = ["netns", client, "type", "veth", "peer", "name", INTERFACE, "netns", server];
        call("ip", &[&["link", "add", INTERFACE][..], &ends].concat())?;
        for (end, address) in [(End::Client, CLIENT_ADDRESS), (End::Server, SERVER_ADDRESS)] {
            let namespace = link.namespace(end);
            call("ip", &["-n", namespace, "link", "set", "lo", "up"])?;
            link.set_up(end, INTERFACE, mtu_bytes)?;
            link.add_address(end, INTERFACE, address)?;
        }
        Ok(link)
    }

    fn add_address(&self, end: End, interface: &str, address: &str) -> Result<()> {
        let address = format!("{address}/24");
        call("ip", &["-n", self.namespace(end), "address", "add", &address, "dev", interface]).map(drop)
    }

    /// Joins the hosts by a second link, without addresses.
    ///
    /// # Errors
    /// As for [`Link::new`].
    pub(crate) fn add_second(&self, mtu_bytes: u32) -> Result<()> {
        let [client, server] = [End::Client, End::Server].map(|end| self.namespace(end));
        let ends = ["netns", client, "type", "veth", "peer", "name", SECOND_INTERFACE, "netns", server];
        call("ip", &[&["link", "add", SECOND_INTERFACE][..], &ends].concat())?;
        [End::Client, End::Server].into_iter().try_for_each(|end| self.set_up(end, SECOND_INTERFACE, mtu_bytes))
    }

    /// Joins the hosts by a second link of another network.
    ///
    /// # Errors
    /// As for [`Link::new`].
    pub(crate) fn add_second_network(&self, mtu_bytes: u32) -> Result<()> {
        self.add_second(mtu_bytes)?;
        self.add_address(End::Client, SECOND_INTERFACE, SECOND_CLIENT_ADDRESS)?;
        self.add_address(End::Server, SECOND_INTERFACE, SECOND_SERVER_ADDRESS)
    }

    fn set_up(&self, end: End, interface: &str, mtu_bytes: u32) -> Result<()> {
        let namespace = self.namespace(end);
        call("ip", &["-n", namespace, "link", "set", interface, "mtu", &mtu_bytes.to_string(), "up"])?;
        // AF_XDP wants VLAN tags left in the packets.
        let offloads = ["-K", interface, "tso", "off", "gso", "off", "gro", "off", "rxvlan", "off"];
        call("ip", &[&["netns", "exec", namespace, "ethtool"][..], &offloads].concat()).map(drop)
    }

    /// Lets no more than so much pass each of two links, each way, with such a queue before it.
    ///
    /// # Errors
    /// When `tc` refuses.
    pub(crate) fn shape(&self, mbit_per_second: u32, queue_bytes: u32) -> Result<()> {
        let (rate, limit) = (format!("{mbit_per_second}mbit"), queue_bytes.to_string());
        for end in [End::Client, End::Server] {
            for interface in [INTERFACE, SECOND_INTERFACE] {
                let queue = ["tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate", &rate];
                let namespace = ["netns", "exec", self.namespace(end)];
                call("ip", &[&namespace[..], &queue, &["burst", "65536", "limit", &limit]].concat())?;
            }
        }
        Ok(())
    }

    /// Both ends on one host, which reach each other by its loopback.
    ///
    /// # Errors
    /// As for [`Link::new`].
    pub(crate) fn loopback() -> Result<Self> {
        let link = Link { namespaces: vec![format!("sanwire-bench-{}-l", std::process::id())] };
        call("ip", &["netns", "add", link.namespace(End::Server)])?;
        call("ip", &["-n", link.namespace(End::Server), "link", "set", "lo", "up"])?;
        Ok(link)
    }

    /// The name of the end's namespace.
    pub(crate) fn namespace(&self, end: End) -> &str {
        let found = match end {
            End::Client => self.namespaces.first(),
            End::Server => self.namespaces.last(),
        };
        found.map_or("", String::as_str)
    }

    /// Packets that the end has sent and received on the link so far.
    ///
    /// # Errors
    /// When `ip` does not tell.
    pub(crate) fn packets(&self, end: End) -> Result<u64> {
        let [sent, received] = self.sent_and_received(end, INTERFACE)?;
        Ok(sent + received)
    }

    /// Packets that the end has received on this interface so far.
    ///
    /// # Errors
    /// When `ip` does not tell.
    pub(crate) fn received(&self, end: End, interface: &str) -> Result<u64> {
        self.sent_and_received(end, interface).map(|[_, received]| received)
    }

    fn sent_and_received(&self, end: End, interface: &str) -> Result<[u64; 2]> {
        let text = call("ip", &["-n", self.namespace(end), "-json", "-stats", "link", "show", interface])?;
        let json: Value = serde_json::from_str(&text)?;
        let count = |direction: &str| json[0]["stats64"][direction]["packets"].as_u64();
        count("tx").zip(count("rx")).map(<[u64; 2]>::from).with_context(|| format!("no packets in: {text}"))
    }

    /// The end's Ethernet address.
    ///
    /// # Errors
    /// When `ip` does not tell.
    pub(crate) fn mac_address(&self, end: End) -> Result<String> {
        self.mac_address_of(end, INTERFACE)
    }

    /// That of this interface.
    ///
    /// # Errors
    /// When `ip` does not tell.
    pub(crate) fn mac_address_of(&self, end: End, interface: &str) -> Result<String> {
        let text = call("ip", &["-n", self.namespace(end), "-brief", "link", "show", interface])?;
        let is_address = |word: &&str| word.len() == 17 && word.matches(':').count() == 5;
        text.split_whitespace().find(is_address).map(Into::into).with_context(|| format!("no address in: {text}"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            if let Err(error) = call("ip", &["netns", "delete", namespace]) {
                eprintln!("sanwire-bench: {error:#}");
            }
        }
    }
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails; what it said on stderr is in the message.
pub(crate) fn call(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}: {}", arguments.join(" "), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
