//! `sanwire attach`.

pub(super) mod array;
mod metrics;

use std::fmt::Write;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use sanwire_attach::{
    AttachError, Attachment, DeviceName, FuseOptions, Kind, Latch, NbdAddress, NbdClients, Record, Registry, Telling,
    attach_fuse, serve_nbd,
};
use sanwire_core::Outages;
use sanwire_initiator::{ClientOptions, ConnectionLook, Url, Volume, VolumeInfo};
use tracing::Level;

use self::metrics::Watched;
use super::{attachments, device, info, status};
use crate::args::{AttachArgs, AttachKind, AttachOptions, Attachable, Entry, VolumePlace};
use crate::config::{ConnectionOptions, runtime_directory};
use crate::connect::{self, Connection};
use crate::failure::misuse;
use crate::{log, output, service, signals};

/// How often a volume in use is tried again.
const DETACH_INTERVAL: Duration = Duration::from_secs(1);

/// Attaches a volume or what an entry says, or looks after the file of entries.
pub(crate) fn run(args: &AttachArgs) -> anyhow::Result<()> {
    if args.check {
        return attachments::check(args);
    }
    if let Some(name) = &args.save {
        return attachments::save(args, name);
    }
    match &args.what {
        Some(Attachable::Volume(_) | Attachable::Array(_)) if args.config.is_some() => {
            Err(misuse("--config is the file of entries: give the name of one, in place of a URL"))
        }
        Some(Attachable::Volume(url)) => attach(url, &args.options, args.preempt),
        Some(Attachable::Array(place)) => {
            array::check_given()?;
            array::attach(place, &args.options, args.preempt)
        }
        Some(Attachable::Entry(name)) => match attachments::entry(args, name)? {
            Entry { url: VolumePlace::Volume(url), options } => attach(&url, &options, args.preempt),
            Entry { url: VolumePlace::Array(place), options } => array::attach(&place, &options, args.preempt),
        },
        None => Err(misuse("give the URL of a volume, or the name of an entry")),
    }
}

/// Attaches, tells where, and stays until it is detached or a signal comes.
fn attach(url: &Url, args: &AttachOptions, preempt: bool) -> anyhow::Result<()> {
    check(url, args)?;
    if preempt && !args.exclusive {
        return Err(misuse("--preempt is for --exclusive: add that, or leave it out"));
    }
    let name = url.volume().map_err(|error| misuse(error.to_string()))?;
    if is_block_device(args) {
        become_io_flusher();
    }
    let registry = Registry::open(device::helper)?;
    // What an attachment that was killed has left would be in the way.
    registry.clean()?;
    let options = connect::options(&args.client, &url.server)?;
    let connection = Connection::open_as(url, &with_terms(args, &options)?)?;
    heed_hangups(args, &connection, options)?;
    let volume = connection.volume(name)?;
    check_identity(url, &volume, args)?;
    // Until it is detached.
    let _claim = registry.claim(&url.to_string(), &volume.info().identity, args.again)?;
    if args.exclusive {
        connection.make_exclusive(&volume, preempt)?;
    }
    warn_of_writer(&connection, &volume, args)?;
    signals::on_suspend(vec![connection.pauser()]).context("cannot catch signals")?;
    let (looker, outages) = (connection.looker(), connection.outages());
    let background = connection.run_in_background()?;
    let named = Named { shown: url.to_string(), place: place_name(url, name), control: None };
    let look = move || looker.look(status::CONNECTION_PATIENCE);
    let result = stay(&named, args, volume, &registry, (look, outages));
    background.leave(args.exclusive);
    result
}

/// What is attached.
struct Named {
    /// As it is written.
    shown: String,
    /// As one file name, so that equal names of two servers do not meet.
    place: String,
    /// Where what is to be done with it is asked for, of an array.
    control: Option<PathBuf>,
}

/// Has the volume here, until it is detached. `look` tells how what is behind it is.
fn stay(
    named: &Named,
    args: &AttachOptions,
    volume: Volume,
    registry: &Registry,
    (look, outages): (impl Fn() -> Option<ConnectionLook> + Send + 'static, Arc<Outages>),
) -> anyhow::Result<()> {
    // The volume is attached also where that cannot be told.
    let clients = NbdClients::default();
    let counted = (args.kind == AttachKind::Nbd).then(|| clients.clone());
    let telling = registry.telling(status::teller(look, volume.looker(), counted));
    let telling = telling.inspect_err(|error| tracing::warn!("`sanwire status` will not see how it is: {error}")).ok();
    if let Some(address) = args.metrics {
        let serving = metrics::serve(address, Watched::new(&volume, Arc::clone(&outages)));
        serving.map_err(|error| {
            let advice = sanwire_server::listening_advice(&error);
            anyhow::Error::from(error).context(format!("cannot tell metrics at {address}{advice}"))
        })?;
    }
    let shown = named.shown.clone();
    outages.watch(move |is_gone| match is_gone {
        true => service::status(&format!("{shown} is attached; its server is away, and what is asked of it waits")),
        false => service::status(&format!("{shown} is attached; its server is back")),
    });
    let stop = Latch::new().context("cannot make a socket pair")?;
    let stopper = stop.clone();
    let given_up = named.shown.clone();
    let stop_now = move || {
        service::stopping();
        stopper.set();
    };
    let give_up = move || {
        tracing::error!(
            "{given_up} was given up while it was in use: what was written and is not at the server yet is lost, and whoever uses it gets \
             errors from now on"
        );
        log::end();
    };
    signals::on_detach(stop_now, give_up).context("cannot catch signals")?;
    match args.kind {
        AttachKind::Fuse => fuse(named, args, volume, (registry, telling.as_ref()), &stop),
        AttachKind::Nbd => nbd(named, args, volume, (registry, telling.as_ref()), (stop, clients)),
    }
}

/// Whether the volume becomes a block device.
fn is_block_device(args: &AttachOptions) -> bool {
    args.kind == AttachKind::Fuse && !args.no_device && rustix::process::geteuid().is_root()
}

/// From now on memory for this process, and for the threads that it begins, is found without writing anything back: what would be
/// written back goes through it.
fn become_io_flusher() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::info!(
            "the kernel may have this process wait for memory that it must free itself (PR_SET_IO_FLUSHER: {error}): it needs CAP_SYS_RESOURCE"
        );
    }
}

/// A volume that was removed and made anew has its name, and not its content.
fn check_identity(url: &Url, volume: &Volume, args: &AttachOptions) -> anyhow::Result<()> {
    let found = info::identity(&volume.info());
    let Some(wanted) = args.identity.as_ref().filter(|wanted| **wanted != found) else { return Ok(()) };
    anyhow::bail!(
        "{url} is another volume than it was: its identity is {found}, not {wanted}; if that is meant, correct --identity or the entry"
    )
}

/// Two hosts that write to one volume destroy what is there, unless what uses it is made for that.
fn warn_of_writer(connection: &Connection, volume: &Volume, args: &AttachOptions) -> anyhow::Result<()> {
    let info = volume.info();
    let Some(other) = connection.other_writer(volume)?.filter(|_| !info.read_only) else { return Ok(()) };
    let (name, server) = (&info.name, &info.server);
    match (args.exclusive, args.read_only) {
        (true, _) => {
            tracing::warn!("{other} has volume {name} of {server} open for writing: its writes fail from now on")
        }
        (false, true) => tracing::warn!(
            "{other} has volume {name} of {server} open for writing: what is read here may be older than what stands there"
        ),
        (false, false) => tracing::warn!(
            "{other} has volume {name} of {server} open for writing: two hosts that mount one file system destroy it, unless it is made for that; \
             --read-only looks at it without harm, --exclusive lets one host alone write"
        ),
    }
    Ok(())
}

/// The options, with what the file of terms says.
fn with_terms(args: &AttachOptions, options: &ClientOptions) -> anyhow::Result<ClientOptions> {
    let terms = args.terms.as_deref().map(ConnectionOptions::read).transpose()?;
    Ok(terms.unwrap_or_default().put_on(options.clone()))
}

/// The file of terms is read again at each SIGHUP, if there is one.
fn heed_hangups(args: &AttachOptions, connection: &Connection, options: ClientOptions) -> anyhow::Result<()> {
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

/// Options of one kind, or protocol, with the other are a mistake.
fn check(url: &Url, args: &AttachOptions) -> anyhow::Result<()> {
    connect::check_protocol(&args.client, &[&url.server])?;
    check_kind(args)
}

/// The same whatever is attached.
pub(super) fn check_kind(args: &AttachOptions) -> anyhow::Result<()> {
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

fn fuse(
    named: &Named,
    args: &AttachOptions,
    volume: Volume,
    (registry, telling): (&Registry, Option<&Telling>),
    stop: &Latch,
) -> anyhow::Result<()> {
    let mount_point = match &args.mount_point {
        Some(directory) if is_taken(registry, directory) => {
            let shown = directory.display();
            return Err(misuse(format!("{shown} is the mount point of another attachment: choose another one")));
        }
        Some(directory) => directory.clone(),
        None => free_place(registry, &runtime_place("volumes")?.join(&named.place)),
    };
    let block_device = is_block_device(args);
    let info = volume.info();
    let options = FuseOptions { mount_point, block_device, read_only: args.read_only, helper: device::helper };
    let mut attachment = attach_fuse(volume, options)?;
    let kind = |name: Option<&DeviceName>| Kind::Fuse {
        mount_point: attachment.mount_point().to_owned(),
        made_mount_point: attachment.made_mount_point(),
        file: attachment.file.clone(),
        file_system: fs::metadata(&attachment.file).ok().map(|file| file.dev()),
        device: attachment.device.clone(),
        name: name.map(|name| name.path().to_owned()),
    };
    // Before anything else takes time: what is not recorded nobody could remove if this process died meanwhile.
    let listing = registry.add(&listed(named, &info, kind(None), telling)?)?;
    let device = attachment.device.as_deref();
    let device_name = device.and_then(|device| DeviceName::give(&info.server, &info.name, device, &attachment.file));
    if device_name.is_some() {
        listing.update(&listed(named, &info, kind(device_name.as_ref()), telling)?)?;
    }
    let mut shown = attachment.device.as_ref().unwrap_or(&attachment.file).display().to_string();
    if let Some(name) = &device_name {
        let _ = write!(shown, "\nwhose name is {}", name.path().display());
    }
    tell(named, &shown)?;
    attachment.wait(stop);
    let result = detach_patiently(&mut attachment);
    drop((device_name, listing));
    result
}

/// Whether a living attachment is mounted there.
fn is_taken(registry: &Registry, directory: &Path) -> bool {
    directory.canonicalize().is_ok_and(|directory| registry.has_mount_point(&directory))
}

/// The directory, or one beside it when another attachment of the volume has that.
fn free_place(registry: &Registry, directory: &Path) -> PathBuf {
    let beside = |number: u32| match number {
        1 => directory.to_owned(),
        _ => PathBuf::from(format!("{}-{number}", directory.display())),
    };
    (1..).map(beside).find(|place| !is_taken(registry, place)).unwrap_or_default()
}

/// Detaches as soon as nobody uses the volume any more; a second signal ends the process instead.
fn detach_patiently(attachment: &mut Attachment) -> anyhow::Result<()> {
    let mut is_told = false;
    loop {
        match attachment.detach() {
            Err(error @ (AttachError::Busy { .. } | AttachError::BlockDevice(_))) => {
                if !is_told {
                    let what = format!(
                        "sanwire: {error}; it is detached as soon as it is free (Ctrl-C gives it up, with what was not written yet)"
                    );
                    eprintln!("{}", log::line(Level::WARN, &what));
                    is_told = true;
                }
                thread::sleep(DETACH_INTERVAL);
            }
            result => return Ok(result?),
        }
    }
}

fn nbd(
    named: &Named,
    args: &AttachOptions,
    volume: Volume,
    (registry, telling): (&Registry, Option<&Telling>),
    (stop, clients): (Latch, NbdClients),
) -> anyhow::Result<()> {
    let address = match (args.listen, &args.socket) {
        (Some(address), _) => NbdAddress::Tcp(address),
        (None, Some(path)) => NbdAddress::Unix(std::path::absolute(path)?),
        (None, None) => NbdAddress::Unix(runtime_place("nbd")?.join(format!("{}.sock", named.place))),
    };
    let info = volume.info();
    let ended = Latch::new().context("cannot make a socket pair")?;
    let server = serve_nbd(volume, args.read_only, &address, ended, clients.clone())?;
    let socket = match server.address() {
        NbdAddress::Unix(path) => Some(path.clone()),
        NbdAddress::Tcp(_) => None,
    };
    let shown = server.address().to_string();
    let _listing = registry.add(&listed(named, &info, Kind::Nbd { socket, url: shown.clone() }, telling)?)?;
    tell(named, &shown)?;
    stop.wait();
    wait_for_clients(&clients, &shown);
    Ok(server.stop()?)
}

/// Who is connected has the volume in use; a second Ctrl-C ends the process instead.
fn wait_for_clients(clients: &NbdClients, place: &str) {
    let count = clients.count();
    if count > 0 {
        let what = format!(
            "sanwire: {place} has {count} NBD clients; it is detached as soon as they have gone (Ctrl-C gives it up)"
        );
        eprintln!("{}", log::line(Level::WARN, &what));
    }
    while clients.count() > 0 {
        thread::sleep(DETACH_INTERVAL);
    }
}

/// What stands in the list of attachments.
fn listed(named: &Named, info: &VolumeInfo, kind: Kind, telling: Option<&Telling>) -> anyhow::Result<Record> {
    let record = Record::of_this_process(named.shown.clone(), kind)?;
    let (name, identity) = (Some(info.name.to_string()), Some(info::identity(info)));
    let (status, control) = (telling.map(|telling| telling.path().to_owned()), named.control.clone());
    Ok(Record { name, identity, status, control, ..record })
}

fn tell(named: &Named, place: &str) -> anyhow::Result<()> {
    let url = &named.shown;
    let how_to_end = format!("Ctrl-C or `sanwire detach {url}` ends it.\n");
    let how_to_end = if io::stdout().is_terminal() { how_to_end.as_str() } else { "" };
    output::print(&format!("{url} is attached as\n{place}\n{how_to_end}"))?;
    service::ready(&format!("{url} is attached as {}", place.replace('\n', ", ")));
    Ok(())
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
