//! Volumes among which the members of an array may be.

use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use sanwire_core::text::printable;
use sanwire_initiator::{AoeServer, HdspServer, HyperScsiServer, Server, Url};
use sanwire_remote::array::{Discovered, FoundVolume};
use sanwire_remote::volume::Access;

use super::{ask_at, volumes_of};
use crate::args::DiscoverArgs;
use crate::stores;

/// How long servers have to tell their volumes: who assembles an array waits.
const ASKING_MAX: Duration = Duration::from_secs(10);

/// The volumes of these servers, or of all that answer on every Ethernet, which are reached and shown what `access` says.
pub(crate) fn find_volumes(asked: &[Url], access: &Access) -> Discovered {
    let mut discovered = Discovered::default();
    let everybody = || {
        let aoe = AoeServer { interface: None, address: None };
        vec![
            Server::HyperScsi(HyperScsiServer::everybody(None)),
            Server::Hdsp(HdspServer::everybody(None)),
            Server::Aoe(aoe),
        ]
    };
    let asked: Vec<Server> = asked.iter().map(|url| url.server.clone()).collect();
    let places = if asked.is_empty() { everybody() } else { asked };
    let answers = thread::scope(|scope| {
        let asking: Vec<_> =
            places.iter().map(|place| scope.spawn(|| usual(access).and_then(|args| ask_at(place, &args)))).collect();
        asking
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("asking failed")))
            .collect::<Vec<_>>()
    });
    let mut seen = Vec::new();
    for (place, answer) in places.iter().zip(answers) {
        match answer {
            Ok(servers) => seen.extend(servers),
            Err(error) => discovered.problems.push(format!("{place} cannot be asked: {error:#}")),
        }
    }
    for (server, volumes) in seen.iter().zip(volumes_of(&seen, Instant::now() + ASKING_MAX)) {
        let url = server.url();
        match volumes {
            Ok(volumes) => discovered
                .volumes
                .extend(volumes.iter().map(|volume| FoundVolume { url: url.with_volume(volume), naa: volume.naa })),
            Err(why) => discovered.problems.push(format!("{url} does not tell its volumes: {}", printable(&why))),
        }
    }
    discovered
}

/// What who says nothing else says.
fn usual(access: &Access) -> anyhow::Result<DiscoverArgs> {
    #[derive(Parser)]
    struct Usual {
        #[command(flatten)]
        discover: DiscoverArgs,
    }
    Ok(Usual::try_parse_from(stores::arguments(access))?.discover)
}
