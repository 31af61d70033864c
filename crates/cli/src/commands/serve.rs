//! `sanwire serve`.

mod web;

use std::env;
use std::fmt::Write;
use std::fs;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context;
use sanwire_core::Lun;
use sanwire_core::text::printable;
use sanwire_hyperscsi::Psk;
use sanwire_io::{code, descriptors, heap, interface};
use sanwire_remote::volume::release_all;
use sanwire_server::{
    Answer, Asker, DESCRIPTORS_WANTED, DirectCopies, ManagementHandle, Manager, Request, Response, Server,
    ServerConfig, Source, TargetNodeConfig, VolumeConfig,
};

use self::web::WebNow;
use crate::args::{LogArgs, ServeArgs};
use crate::config::{FileClient, ServeConfig, Wire};
use crate::control::ControlSocket;
use crate::failure::Misuse;
use crate::stores::client_id;
use crate::{control, keys, log, output, rdma, service, signals};

/// Volumes, and units of targets, that are named when the server starts: people read that.
const SHOWN_MAX: usize = 32;

/// How often the server's threads are looked after.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// How long other servers are waited for to take back what was reserved there.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// Checks everything, then opens, then serves until a signal comes.
pub(crate) fn run(args: &ServeArgs, log: LogArgs) -> anyhow::Result<()> {
    let config = ServeConfig::load(args, log)?;
    if args.check {
        return check(&config);
    }
    log::start(config.log, config.log_format);
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    if let Some(directory) = &config.make_directory {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the data directory {}", directory.display()))?;
    }
    raise_limit();
    let wanted = target_config(&config)?;
    // Before clients are served: from then on the server ends in order, if need be as soon as it has started.
    let (stop, stopped) = mpsc::channel();
    signals::on_stop(move || {
        service::stopping();
        let stopping = "sanwire: stopping: commands under way are finished and everything is flushed";
        eprintln!("{}", log::line(tracing::Level::INFO, stopping));
        // Nobody listens any more when the server has ended by itself.
        let _ = stop.send(());
    })
    .context("cannot catch signals")?;
    let http = WebNow::new(config.web.clone());
    let starting = service::extend_start().context("cannot start a thread for the service manager")?;
    let desk = ManagementHandle::new(Manager::start(wanted, again(args.clone(), log, http.clone()))?);
    desk.add_metrics(rdma::metrics);
    let _socket = open_control(&config, &desk)?;
    let web = http.open(&desk)?;
    let reloaded = desk.clone();
    signals::on_hangup(move || reload(&reloaded)).context("cannot catch signals")?;
    let is_terminal = io::stdout().is_terminal();
    output::print(&if is_terminal { welcome(&program_name(), &config) } else { served(&config) + "\n" })?;
    output::print(&web::places(web.as_ref())?)?;
    if let Some(pulse) = desk.pulse() {
        service::feed_watchdog(move |within| pulse.beats(within)).context("cannot start a thread for the watchdog")?;
    }
    drop(starting);
    service::ready(&status(&config));
    heap::give_back();
    // Where it is not done, the code of the start stays resident.
    let _ = code::give_back();
    while stopped.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        anyhow::ensure!(desk.is_alive(), "a part of the server has ended: see the log above, and start it again");
    }
    drop(web);
    let end = desk.end().map_or(Ok(()), Server::stop).context("not everything could be flushed");
    // Its volumes on other servers are others' to use then.
    release_all(RELEASE_PATIENCE);
    end
}

/// Says what is hardly meant so, and what a start would miss.
fn check(config: &ServeConfig) -> anyhow::Result<()> {
    let warnings: Vec<String> = config.warnings.iter().cloned().chain(config.web.look().ok().flatten()).collect();
    for warning in &warnings {
        eprintln!("warning: {}", printable(warning));
    }
    let obstacles = config.obstacles();
    for obstacle in &obstacles {
        eprintln!("error: {}", printable(obstacle));
    }
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    anyhow::ensure!(
        obstacles.is_empty(),
        "this configuration cannot be served here: {}, {}",
        count(obstacles.len(), "error"),
        count(warnings.len(), "warning")
    );
    let (volumes, wires) = (count(config.volumes.len(), "volume"), count(config.wires.len(), "wire"));
    let (targets, clients) = (count(config.targets.len(), "iSCSI target"), count(config.clients.len(), "known client"));
    let warnings = count(warnings.len(), "warning");
    Ok(output::print(&format!(
        "the configuration can be served: {volumes}, {wires}, {targets}, {clients}; {warnings}\n"
    ))?)
}

/// Has the kernel allow as many open files as all connections together may take, or as many as it may.
fn raise_limit() {
    match descriptors::raise_limit(DESCRIPTORS_WANTED) {
        // Few servers have so many connections; one that runs out of descriptors says so then, and what to do.
        Ok(limit) if limit < DESCRIPTORS_WANTED => tracing::debug!(
            "this process may have {limit} files open; with {DESCRIPTORS_WANTED} it could have as many connections as its limits allow"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!("the limit of open files cannot be raised ({error}): fewer sessions are possible"),
    }
}

/// Where the configuration comes from when it is read again: where it came from at first.
fn again(mut args: ServeArgs, log: LogArgs, http: WebNow) -> Source {
    // That was for the start.
    args.renewed.clear();
    args.adopted.clear();
    Box::new(move || {
        let config = ServeConfig::load(&args, log).and_then(|config| {
            config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            http.read_again(&config.web)?;
            target_config(&config)
        });
        config.map_err(|error| format!("{error:#}"))
    })
}

/// Reads the configuration again; what becomes of it is logged.
fn reload(desk: &ManagementHandle) {
    match desk
        .handle(&Asker::Signal { signal: "SIGHUP" }, Request::Reload { force: false, dry_run: false, reset: false })
    {
        Response::Done(Answer::Changed(lines)) => lines.iter().for_each(|line| tracing::info!("reload: {line}")),
        Response::Done(_) => {}
        Response::Refused(reason) => tracing::error!("the configuration was not reloaded: {reason}"),
    }
}

/// A server can serve without being managed, unless somebody has asked for it, or another server of its name is managed here: clients
/// could not tell the two apart either.
fn open_control(config: &ServeConfig, desk: &ManagementHandle) -> anyhow::Result<Option<ControlSocket>> {
    let open = |path: &Path| {
        let desk = desk.clone();
        ControlSocket::open(path, move |by, line| desk.handle_json(by, line))
    };
    if let Some(path) = &config.control {
        return open(path).map(Some);
    }
    let unmanaged = |error: anyhow::Error| {
        tracing::warn!("`sanwire ctl` will not reach this server: {error:#}");
        Ok(None)
    };
    match control::socket_of(&config.name) {
        Err(error) => unmanaged(error),
        Ok(path) => match open(&path) {
            Err(error) if !error.is::<Misuse>() => unmanaged(error),
            opened => opened.map(Some),
        },
    }
}

/// The server that the configuration means. Keys are read and made here.
fn target_config(config: &ServeConfig) -> anyhow::Result<ServerConfig> {
    let volumes = config.volumes.iter().zip(&config.origins).zip(0..);
    let volumes = volumes.filter_map(|((spec, origin), number)| {
        Some(VolumeConfig { lun: Lun::new(number)?, spec: spec.clone(), origin: *origin })
    });
    Ok(ServerConfig {
        name: config.name.as_str().to_owned(),
        identity: keys::load_or_make(&config.key_file)?,
        psk: psk(config)?,
        wires: config.wires.clone(),
        protection: config.security,
        compression: config.compression,
        rekey_interval: config.rekey_interval,
        allow: config.allow.clone(),
        clients: config.clients.iter().map(FileClient::resolve).collect::<anyhow::Result<_>>()?,
        pools: config.pools.clone(),
        volumes: volumes.collect(),
        accepted: config.accepted.clone(),
        exports: config.targets.clone(),
        discovery: config.discovery.clone(),
        shards: u32::try_from(config.shards).unwrap_or(1),
        memory_bytes: ServerConfig::MEMORY_BYTES_DEFAULT,
        ring_bytes: sanwire_io::RING_BYTES_DEFAULT / config.shards.max(1),
        engine: config.engine.into(),
        visa: config.visa,
        recovery: config.recovery.into(),
        state_directory: config.state_directory.clone(),
        audit_log: config.audit_log.clone(),
        announced: config.announced.clone(),
        metrics_of_clients: config.metrics_of_clients,
        rdma: rdma::adapters(),
        direct_copies: DirectCopies { client_id: Some(client_id), ..config.direct_copies.clone() },
    })
}

/// What clients must know.
fn psk(config: &ServeConfig) -> anyhow::Result<Psk> {
    match (&config.secret_file, &config.password) {
        (Some(file), _) => keys::secret(file),
        (None, Some(password)) => keys::psk(password),
        (None, None) => Ok(keys::NO_PASSWORD),
    }
}

/// The line that `systemctl status` shows.
fn status(config: &ServeConfig) -> String {
    let wires: Vec<_> = config.wires.iter().map(Wire::to_string).collect();
    format!("{} serves on {}", config.name.as_str(), wires.join(", "))
}

/// What is served, and where.
fn served(config: &ServeConfig) -> String {
    let mut text = format!("{} serves", config.name.as_str());
    for volume in config.volumes.iter().take(SHOWN_MAX) {
        let _ = write!(text, " {}", volume.name);
    }
    if let Some(more) = config.volumes.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        let _ = write!(text, " and {more} more");
    }
    for wire in &config.wires {
        let _ = write!(text, "\n  on {wire}");
    }
    let units = target_urls(config);
    for url in units.iter().take(SHOWN_MAX) {
        let _ = write!(text, "\n  as {url}");
    }
    if let Some(more) = units.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        let _ = write!(text, "\n  and {more} more");
    }
    text
}

/// What is served, and what to type in another terminal.
fn welcome(program: &str, config: &ServeConfig) -> String {
    let mut text = served(config);
    let Some(volume) = config.volumes.first() else { return text + "\n" };
    let name = &volume.name;
    let (server, first) = urls(config);
    let secret = client_option(config);
    let _ = write!(
        text,
        "\n\nIn another terminal, list the volumes:\n  {program} ls {server}{secret}\n\
         copy an image into one (one that holds something wants --overwrite):\n  {program} cp IMAGE {first}{secret}\n\
         attach one as a file (with sudo also as a block device):\n  {program} attach {first} --mount-point ./{name}{secret}\n\n\
         Ctrl-C ends the server.\n"
    );
    text
}

/// What those commands need besides on the first wire: a secret, or another path than the usual one.
fn client_option(config: &ServeConfig) -> &'static str {
    if config.wires.first().is_some_and(Wire::is_by_adapter) {
        return " --iser-path rdma";
    }
    let is_hyperscsi = config.wires.first().is_none_or(Wire::is_for_clients);
    match (&config.secret_file, &config.password) {
        (Some(_), _) if is_hyperscsi => " --secret-file FILE",
        (None, Some(_)) if is_hyperscsi => " --password-file FILE",
        _ => "",
    }
}

/// The logical units of the iSCSI targets, as an initiator finds them: each at the first portal of its target's groups.
fn target_urls(config: &ServeConfig) -> Vec<String> {
    let portal_of = |target: &TargetNodeConfig| {
        let groups = &target.group_tags;
        let is_its = |tag: u16| groups.is_empty() || groups.contains(&tag);
        config.wires.iter().find(|wire| wire.has_targets() && wire.portal().is_some_and(|(_, tag)| is_its(tag)))
    };
    let urls_of = |target: &TargetNodeConfig| {
        let server = portal_of(target).map(|wire| server_url(config, wire));
        let units = target.units.keys().filter_map(|lun| Some(format!("{}/{}/{lun}", server.as_ref()?, target.name)));
        units.collect::<Vec<_>>()
    };
    config.targets.iter().flat_map(urls_of).collect()
}

/// The server and its first volume as a client sees them on the first wire; where that cannot be known, a word to replace.
fn urls(config: &ServeConfig) -> (String, String) {
    let wire = config.wires.first().cloned().unwrap_or_default();
    let server = server_url(config, &wire);
    let first = if wire.has_targets() {
        target_urls(config).into_iter().next().unwrap_or_else(|| format!("{server}/TARGET/LUN"))
    } else if wire.has_shelves() {
        let said = config.volumes.first().and_then(|volume| volume.aoe);
        said.map_or_else(|| format!("{server}/SHELF.SLOT"), |at| format!("{server}/{}.{}", at.shelf, at.slot))
    } else {
        config.volumes.first().map_or_else(|| format!("{server}/VOLUME"), |volume| format!("{server}/{}", volume.name))
    };
    (server, first)
}

/// The server as clients find it on one of its wires.
fn server_url(config: &ServeConfig, wire: &Wire) -> String {
    let (scheme, name) = (wire.scheme(), config.name.as_str());
    match wire.address().zip(wire.usual_port()) {
        Some((address, port)) => format!("{scheme}://{}", client_address(own_address(address), port)),
        None if wire.has_shelves() => format!("{scheme}://INTERFACE"),
        None => format!("{scheme}://INTERFACE/{name}"),
    }
}

fn client_address(address: SocketAddr, port: u16) -> String {
    let host = address.to_string();
    host.strip_suffix(&format!(":{port}")).map(str::to_owned).unwrap_or(host)
}

/// Of a port on all addresses one by which clients reach it: that of an interface, else the loopback's. The server's name may be known to
/// no name server.
fn own_address(listened: SocketAddr) -> SocketAddr {
    if !listened.ip().is_unspecified() {
        return listened;
    }
    let mut interfaces = interface::list().unwrap_or_default();
    interfaces.retain(|interface| interface.is_up && interface.is_running && !interface.is_loopback);
    let is_usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        // Without its interface an address of the link leads nowhere.
        IpAddr::V6(ip) => listened.is_ipv6() && !ip.is_unicast_link_local(),
    };
    let mut addresses: Vec<IpAddr> = interfaces.into_iter().flat_map(|it| it.addresses).filter(is_usable).collect();
    // Stable: those of one family stay in the order of their interfaces.
    addresses.sort_by_key(IpAddr::is_ipv6);
    SocketAddr::new(addresses.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into()), listened.port())
}

/// What to type for this program: its name where the search path leads to it, else where it is.
fn program_name() -> String {
    const NAME: &str = "sanwire";
    let Ok(here) = env::current_exe() else { return NAME.into() };
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join(NAME)).find(|program| program.is_file());
    let is_found = found.and_then(|program| program.canonicalize().ok()) == here.canonicalize().ok();
    if is_found { NAME.into() } else { here.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(wires: &[&str]) -> ServeConfig {
        let args = ServeArgs {
            volumes: vec!["disk0=ram:1M".parse().unwrap()],
            wires: wires.iter().map(|wire| wire.parse().unwrap()).collect(),
            name: Some("box".parse().unwrap()),
            key_file: Some("/k".into()),
            ..ServeArgs::default()
        };
        ServeConfig::load(&args, LogArgs::default()).unwrap()
    }

    #[test]
    fn a_port_on_all_addresses_is_shown_by_one_that_leads_there() {
        for (wire, usual) in [("hs-ip:0.0.0.0", true), ("hs-ip:0.0.0.0:99", false), ("iscsi:[::]:99", false)] {
            let url = server_url(&config(&[wire]), &wire.parse().unwrap());
            let authority = url.split_once("://").unwrap().1;
            let host: IpAddr = match authority.strip_suffix(":99") {
                Some(host) => host.trim_matches(['[', ']']).parse().unwrap(),
                None => authority.parse().unwrap(),
            };
            assert!(!host.is_unspecified() && authority.ends_with(":99") != usual, "{url}");
        }
    }

    #[test]
    fn a_target_is_shown_at_a_portal_of_its_groups() {
        let mut config = config(&["iscsi:192.0.2.1", "iscsi:192.0.2.2,2"]);
        config.targets[0].group_tags = vec![2];
        assert_eq!(target_urls(&config), ["iscsi://192.0.2.2/iqn.2026-11.org.sanwire:disk0/0"]);
    }

    #[test]
    fn the_welcome_has_commands_to_paste() {
        for (wire, url) in [
            ("hs-ip:127.0.0.1", "hs+ip://127.0.0.1/disk0"),
            ("hs-ip:127.0.0.1:99", "hs+ip://127.0.0.1:99/disk0"),
            ("hs-ip:[::1]", "hs+ip://[::1]/disk0"),
            ("hs-eth:eth0", "hs+eth://INTERFACE/box/disk0"),
            ("iscsi:127.0.0.1", "iscsi://127.0.0.1/iqn.2026-11.org.sanwire:disk0/0"),
        ] {
            let text = welcome("sanwire", &config(&[wire]));
            let command = format!("  sanwire attach {url} --mount-point ./disk0\n");
            assert!(text.contains(&command), "{wire}\n{text}");
        }
    }
}
