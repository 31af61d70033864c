//! What the bare link carries one way: full frames by `sendmmsg` into a receive ring (`rawlink`, an example of `crates/io`).

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::link::{End, INTERFACE, Link};
use crate::load::{ClientCommand, MIB, number, run_client, words};
use crate::process::Host;
use crate::run::Settings;
use crate::sample::Sample;

/// How it is measured.
#[derive(Debug)]
pub(crate) struct RawLink {
    program: String,
    pub(crate) server_mac: String,
    mtu_bytes: u32,
    seconds: f64,
}

impl RawLink {
    /// Of a link with this MTU.
    ///
    /// # Errors
    /// When `ip` does not tell the server's address.
    pub(crate) fn new(settings: &Settings, link: &Link, mtu_bytes: u32) -> Result<Self> {
        let [_, program, _] = settings.programs.clone();
        Ok(RawLink { program, server_mac: link.mac_address(End::Server)?, mtu_bytes, seconds: settings.seconds })
    }

    /// What sends the frames: one again and again, or, cold, out of memory that no cache holds.
    pub(crate) fn sender(&self, is_cold: bool) -> ClientCommand {
        let cold = if is_cold { " --cold" } else { "" };
        let (mac, mtu, seconds) = (&self.server_mac, self.mtu_bytes, self.seconds + 0.4);
        (self.program.clone(), words(&format!("send {INTERFACE} {mac} {mtu} {seconds}{cold}")))
    }

    /// Measures once. The receiver counts; the sender starts a little later and ends a little later.
    ///
    /// # Errors
    /// When one of them fails.
    pub(crate) fn measure(&self, host: &Host, sender: &ClientCommand) -> Result<Sample> {
        let seconds = self.seconds.to_string();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| host.run(End::Server, &self.program, &["receive", INTERFACE, &seconds]));
            std::thread::sleep(Duration::from_millis(150));
            let sent = run_client(host, sender);
            let Ok(received) = receiver.join() else { bail!("the receiver's thread panicked") };
            let (sent, received) = (sent?, received?);
            let json: Value = serde_json::from_str(&received.output)?;
            let packets_per_s = number(&json, "packets_per_s")?;
            let count = number(&json, "packets")?.max(1.0);
            Ok(Sample {
                iops: Some(packets_per_s),
                mib_per_s: Some(packets_per_s * f64::from(self.mtu_bytes) / MIB),
                server_cpu_us: Some(received.cpu.as_secs_f64() * 1e6 / count),
                client_cpu_us: Some(sent.cpu.as_secs_f64() * 1e6 / count),
                ..Sample::default()
            })
        })
    }
}
