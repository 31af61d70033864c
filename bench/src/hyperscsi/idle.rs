//! What server and client cost while nobody uses them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::link::End;
use crate::process::Host;
use crate::servers::{Files, HYPERSCSI, Wire, start_sanwire};

/// Processor time in percent of one processor, and memory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Idle {
    pub(crate) server_percent: f64,
    pub(crate) client_percent: f64,
    pub(crate) server_resident_mib: f64,
    /// The client's command.
    pub(crate) attach: String,
}

impl Idle {
    /// A server of a file and a client that has attached it over raw Ethernet, both left alone for that long. The memory
    /// is measured last, after a load of a second from a second client that has left by then.
    ///
    /// # Errors
    /// When one of them does not come up.
    pub(crate) fn measure(host: &Host, sanwire: &str, files: &Files, time: Duration) -> Result<Self> {
        let server = start_sanwire(
            host,
            sanwire,
            files,
            &HYPERSCSI,
            &[format!("tmpfs=file:{}", files.image("sanwire.img")?)],
            &[],
        )?;
        let url = Wire::Ethernet.url("tmpfs");
        let (key, socket) = (files.path("client.key"), files.path("nbd.sock"));
        let attach = ["attach", &url, "--as", "nbd", "--socket", &socket, "--key-file", &key];
        let client = host.start(End::Client, sanwire, &attach)?;
        thread::sleep(Duration::from_millis(1500));
        let (server_before, client_before, start) = (server.cpu()?, client.cpu()?, Instant::now());
        thread::sleep(time);
        let elapsed = start.elapsed().as_secs_f64();
        let percent = |used: Duration| used.as_secs_f64() / elapsed * 100.0;
        let server_percent = percent(server.cpu()?.saturating_sub(server_before));
        let client_percent = percent(client.cpu()?.saturating_sub(client_before));
        let other_key = files.path("other-client.key");
        let load = ["bench", &url, "--time", "1", "--depth", "32", "--key-file", &other_key];
        host.run(End::Client, sanwire, &load)?;
        let server_resident_mib = server.resident_bytes()? as f64 / f64::from(1 << 20);
        Ok(Idle { server_percent, client_percent, server_resident_mib, attach: attach.join(" ") })
    }

    /// For the results file.
    pub(crate) fn to_json(&self) -> Value {
        let Idle { server_percent, client_percent, server_resident_mib, attach } = self;
        json!({
            "server_percent": server_percent, "client_percent": client_percent,
            "server_resident_mib": server_resident_mib, "attach": attach,
        })
    }
}
