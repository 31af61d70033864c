//! A server of ours, and clients of ours that put loads on it: for parts that compare Sanwire with itself.

use anyhow::Result;

use crate::link::{End, Link};
use crate::load::{ClientCommand, Load, Read, line, loaded, loaded_by, sanwire_bench};
use crate::process::{Host, Running};
use crate::run::Settings;
use crate::sample::{Row, Sample};
use crate::servers::{Files, Wire, start_sanwire};

/// Jumbo frames, of which the targets speak.
pub(crate) const MTU_BYTES: u32 = 9000;

/// The server, and how clients are started.
pub(crate) struct Bed<'a> {
    pub(crate) host: Host<'a>,
    server: Running,
    client_key: String,
    control: String,
    sanwire: &'a str,
    seconds: f64,
}

impl<'a> Bed<'a> {
    /// Starts the server with these volumes on these wires.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn new(
        settings: &'a Settings,
        link: &'a Link,
        files: &Files,
        wires: &[Wire],
        volumes: &[String],
    ) -> Result<Self> {
        Bed::with(settings, link, files, wires, volumes, &[])
    }

    /// The same, with more options of the server.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn with(
        settings: &'a Settings,
        link: &'a Link,
        files: &Files,
        wires: &[Wire],
        volumes: &[String],
        more: &[&str],
    ) -> Result<Self> {
        let host = Host { link, processors: settings.processors };
        let sanwire = &settings.programs[0];
        let server = start_sanwire(&host, sanwire, files, wires, volumes, more)?;
        let [client_key, control] = ["client.key", "control"].map(|name| files.path(name));
        Ok(Bed { host, server, client_key, control, sanwire, seconds: settings.seconds })
    }

    /// A client that puts the load on the volume over raw Ethernet, with more options.
    pub(crate) fn client(&self, load: &Load, volume: &str, more: &str) -> ClientCommand {
        self.client_over(Wire::Ethernet, load, volume, more)
    }

    /// The same over this wire.
    pub(crate) fn client_over(&self, wire: Wire, load: &Load, volume: &str, more: &str) -> ClientCommand {
        sanwire_bench(self.sanwire, load, self.seconds, &wire.url(volume), &self.client_key, more)
    }

    /// The same of another client, for so many seconds.
    pub(crate) fn client_with_key(
        &self,
        wire: Wire,
        load: &Load,
        volume: &str,
        key: &str,
        seconds: f64,
    ) -> ClientCommand {
        sanwire_bench(self.sanwire, load, seconds, &wire.url(volume), key, "")
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn metrics(&self) -> Result<String> {
        Ok(self.host.run(End::Server, self.sanwire, &["ctl", "--socket", &self.control, "metrics"])?.output)
    }

    /// Has the client do it once.
    ///
    /// # Errors
    /// As of [`loaded`].
    pub(crate) fn measure(&self, client: &ClientCommand, read: impl FnOnce(&str) -> Read) -> Result<Sample> {
        loaded(&self.host, &self.server, client, read)
    }

    /// The same, with the server's processor time to the nanosecond.
    ///
    /// # Errors
    /// As of [`loaded`].
    pub(crate) fn measure_threads(&self, client: &ClientCommand, read: impl FnOnce(&str) -> Read) -> Result<Sample> {
        loaded_by(&self.host, || self.server.cpu_of_threads(), client, read)
    }
}

/// A row of what such a client does, without samples.
pub(crate) fn row(contender: &str, load: &Load, client: &ClientCommand) -> Row {
    let (contender, load, command) = (contender.into(), load.name(), line(client));
    Row { mtu_bytes: MTU_BYTES, contender, load, command, samples: vec![] }
}
