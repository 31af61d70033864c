//! `sanwire attach`.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use sanwire_attach::{
    AttachError, Attachment, FuseOptions, Kind, Latch, NbdAddress, Record, Registry, attach_fuse, serve_nbd,
};
use sanwire_initiator::{ClientOptions, Url, Volume};

use super::device;
use crate::args::{AttachArgs, AttachKind};
use crate::config::{ConnectionOptions, runtime_directory};
use crate::connect::{self, Connection};
use crate::failure::misuse;
use crate::{output, signals};

/// How often a volume in use is tried again.
const DETACH_INTERVAL: Duration = Duration::from_secs(1);

/// Attaches, tells where, and stays until it is detached or a signal comes.
pub(crate) fn run(args: &AttachArgs) -> anyhow::Result<()> {
    check(args)?;
    let name = args.url.volume().map_err(|error| misuse(error.to_string()))?;
    let registry = Registry::open(device::helper)?;
    // What an attachment that was killed has left would be in the way.
    registry.clean()?;
    let options = connect::options(&args.client, &args.url.server)?;
    let connection = Connection::open_as(&args.url, &with_terms(args, &options)?)?;
    heed_hangups(args, &connection, options)?;
    let volume = connection.volume(name)?;
    signals::on_suspend(vec![connection.pauser()]).context("cannot catch signals")?;
    let background = connection.run_in_background()?;
    let stop = Latch::new().context("cannot make a socket pair")?;
    let stopper = stop.clone();
    signals::on_stop(move || stopper.set()).context("cannot catch signals")?;
    let result = match args.kind {
        AttachKind::Fuse => fuse(args, name, volume, &registry, &stop),
        AttachKind::Nbd => nbd(args, name, volume, &registry, stop),
    };
    background.leave();
    result
}

/// The options, with what the file of terms says.
fn with_terms(args: &AttachArgs, options: &ClientOptions) -> anyhow::Result<ClientOptions> {
    let terms = args.terms.as_deref().map(ConnectionOptions::read).transpose()?;
    Ok(terms.unwrap_or_default().put_on(options.clone()))
}

/// The file of terms is read again at each SIGHUP, if there is one.
fn heed_hangups(args: &AttachArgs, connection: &Connection, options: ClientOptions) -> anyhow::Result<()> {
    let Some(file) = args.terms.clone() else { return Ok(()) };
    let wishes = connection.wishes();
    let reload = move || {
        let wish = ConnectionOptions::read(&file).and_then(|terms| {
            let ClientOptions { connection, protection_min, .. } = terms.put_on(options.clone());
            Ok(wishes.wish(connection, protection_min)?)
        });
        match wish {
            Ok(()) => tracing::info!("asking the server for the options of {}", file.display()),
            Err(error) => tracing::error!("the connection stays as it is: {error:#}"),
        }
    };
    signals::on_hangup(reload).context("cannot catch signals")
}

/// Options of one kind with the other are a mistake.
fn check(args: &AttachArgs) -> anyhow::Result<()> {
    match args.kind {
        AttachKind::Fuse if args.socket.is_some() || args.listen.is_some() => {
            Err(misuse("--socket and --listen are for --as nbd: add that, or leave them out"))
        }
        AttachKind::Nbd if args.mount_point.is_some() || args.no_device => {
            Err(misuse("--mount-point and --no-device are for --as fuse: leave them out"))
        }
        _ => Ok(()),
    }
}

fn fuse(args: &AttachArgs, name: &str, volume: Volume, registry: &Registry, stop: &Latch) -> anyhow::Result<()> {
    let mount_point = match &args.mount_point {
        Some(directory) => directory.clone(),
        None => runtime_place("volumes")?.join(place_name(&args.url, name)),
    };
    let block_device = !args.no_device && rustix::process::geteuid().is_root();
    let mut attachment = attach_fuse(volume, FuseOptions { mount_point, block_device, helper: device::helper })?;
    let kind = Kind::Fuse {
        mount_point: attachment.mount_point().to_owned(),
        made_mount_point: attachment.made_mount_point(),
        file: attachment.file.clone(),
        device: attachment.device.clone(),
    };
    let listing = registry.add(&Record::of_this_process(args.url.to_string(), kind)?)?;
    let shown = attachment.device.as_ref().unwrap_or(&attachment.file).display().to_string();
    tell(&args.url, &shown)?;
    attachment.wait(stop);
    let result = detach_patiently(&mut attachment);
    drop(listing);
    result
}

/// Detaches as soon as nobody uses the volume any more; a second signal ends the process instead.
fn detach_patiently(attachment: &mut Attachment) -> anyhow::Result<()> {
    let mut is_told = false;
    loop {
        match attachment.detach() {
            Err(error @ (AttachError::Busy { .. } | AttachError::BlockDevice(_))) => {
                if !is_told {
                    eprintln!("sanwire: {error}; it is detached as soon as it is free (Ctrl-C again gives it up)");
                    is_told = true;
                }
                thread::sleep(DETACH_INTERVAL);
            }
            result => return Ok(result?),
        }
    }
}

fn nbd(args: &AttachArgs, name: &str, volume: Volume, registry: &Registry, stop: Latch) -> anyhow::Result<()> {
    let address = match (args.listen, &args.socket) {
        (Some(address), _) => NbdAddress::Tcp(address),
        (None, Some(path)) => NbdAddress::Unix(std::path::absolute(path)?),
        (None, None) => NbdAddress::Unix(runtime_place("nbd")?.join(format!("{}.sock", place_name(&args.url, name)))),
    };
    let server = serve_nbd(volume, &address, stop)?;
    let socket = match server.address() {
        NbdAddress::Unix(path) => Some(path.clone()),
        NbdAddress::Tcp(_) => None,
    };
    let shown = server.address().to_string();
    let _listing =
        registry.add(&Record::of_this_process(args.url.to_string(), Kind::Nbd { socket, url: shown.clone() })?)?;
    tell(&args.url, &shown)?;
    Ok(server.wait()?)
}

fn tell(url: &Url, place: &str) -> anyhow::Result<()> {
    Ok(output::print(&format!("{url} is attached as\n{place}\nCtrl-C or `sanwire detach {url}` ends it.\n"))?)
}

/// A directory below the runtime directory, for the owner only.
fn runtime_place(kind: &str) -> anyhow::Result<PathBuf> {
    let directory = runtime_directory("--mount-point DIR or --socket PATH")?.join(kind);
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.with_context(|| format!("cannot make the directory {}", directory.display()))?;
    Ok(directory)
}

/// Server and volume as one file name, so that equal names of two servers do not meet.
fn place_name(url: &Url, volume: &str) -> String {
    let server: String = url.server.to_string();
    let server = server.split_once("://").map_or(server.as_str(), |(_, rest)| rest);
    format!("{}-{volume}", server.replace(['/', ':', '[', ']'], "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_tell_servers_apart() {
        let name = |text: &str| {
            let url: Url = text.parse().unwrap();
            place_name(&url, url.volume().unwrap())
        };
        assert_eq!(name("hs+ip://[::1]:99/disk0"), "___1__99-disk0");
        assert_eq!(name("hs+eth://eth0/box/disk0"), "eth0_box-disk0");
    }
}
