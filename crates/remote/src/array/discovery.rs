//! Members that nobody has named: volumes of the servers that answer, by the labels on them.

use std::collections::BTreeSet;

use sanwire_initiator::{HyperScsiServer, Server, Url};

use super::members::{Members, parts};
use crate::volume::{Access, MakeOptions, naa_of};

/// Volumes whose labels are looked at.
const VOLUMES_MAX: usize = 256;

/// A volume that some server has for this client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundVolume {
    /// Where it is.
    pub url: Url,
    /// Its NAA name, the same over all wires.
    pub naa: Option<u64>,
}

/// What servers have.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Discovered {
    /// Their volumes.
    pub volumes: Vec<FoundVolume>,
    /// What could not be asked, and why.
    pub problems: Vec<String>,
}

/// Asks these servers for their volumes; without any, all that answer on every Ethernet. It takes some seconds at the most.
pub type Discover = fn(&[Url]) -> Discovered;

/// How members are found.
#[derive(Clone, Copy)]
pub(super) struct Discovery {
    pub(super) discover: Discover,
    pub(super) options: MakeOptions,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Sought {
    /// How the members are written.
    pub(super) texts: Vec<String>,
    /// What was looked at, and what could not be, for people.
    pub(super) told: String,
}

impl Discovery {
    /// Seeks members of an array beside those that are `given`. Nothing is reserved: other arrays' members are only looked at.
    pub(super) fn seek(&self, name: &str, given: &[String], places: &[Url]) -> Sought {
        let Discovered { volumes, problems } = (self.discover)(places);
        let given: Vec<Url> =
            given.iter().filter_map(|text| parts(text).next()?.replace(r"\,", ",").parse().ok()).collect();
        let names: BTreeSet<u64> = given.iter().filter_map(|url| self.naa(url, &volumes)).collect();
        let volumes = distinct(volumes, &given, names);
        let texts: Vec<String> =
            volumes.iter().take(VOLUMES_MAX).map(|volume| volume.url.to_string().replace(',', r"\,")).collect();
        let looked = Members::open_only(&texts, false);
        let mut sought = Sought::default();
        for (place, label) in looked.labels() {
            if label.table.name == name {
                tracing::info!("array {name}: member {} was found at {place}", label.own + 1);
                sought.texts.push(place);
            }
        }
        sought.told = format!(
            "by discovery {} volumes were looked at, {} of them members of it",
            texts.len(),
            sought.texts.len()
        );
        let unread = looked.failures.iter().map(|(text, why)| format!("{text} cannot be looked at: {why}"));
        problems.into_iter().chain(unread).for_each(|problem| sought.told += &format!("; {problem}"));
        if volumes.len() > VOLUMES_MAX {
            sought.told += &format!("; only {VOLUMES_MAX} were looked at: name servers with discover=URL");
        }
        sought
    }

    fn naa(&self, url: &Url, volumes: &[FoundVolume]) -> Option<u64> {
        match volumes.iter().find(|volume| volume.url == *url) {
            Some(volume) => volume.naa,
            None => naa_of(url, &(self.options)(&url.server, &Access::default()).ok()?),
        }
    }
}

/// Each volume once, by the way on which it can be reserved, and without those that are known: what two wires lead to has one NAA name.
fn distinct(mut volumes: Vec<FoundVolume>, known: &[Url], mut names: BTreeSet<u64>) -> Vec<FoundVolume> {
    volumes.sort_by_key(|volume| match volume.url.server {
        Server::HyperScsi(HyperScsiServer::Ethernet { .. }) => 0,
        Server::HyperScsi(HyperScsiServer::Ip { .. }) => 1,
        Server::Hdsp(_) => 2,
        Server::Iscsi(_) => 3,
        Server::Aoe(_) => 4,
    });
    volumes.retain(|volume| !known.contains(&volume.url) && volume.naa.is_none_or(|naa| names.insert(naa)));
    volumes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(url: &str, naa: Option<u64>) -> FoundVolume {
        FoundVolume { url: url.parse().unwrap(), naa }
    }

    #[test]
    fn a_volume_that_two_wires_lead_to_is_taken_by_the_one_that_reserves_it() {
        let volumes = vec![
            volume("aoe://lan0/7.3", Some(1)),
            volume("hdsp://lan0/box/one", Some(1)),
            volume("aoe://lan0/7.4", Some(2)),
            volume("aoe://lan0/7.5", None),
            volume("hs+eth://lan0/box/four", Some(4)),
            volume("hs+ip://box/five", Some(5)),
        ];
        let known = ["hs+ip://box/five".parse().unwrap()];
        let found = distinct(volumes, &known, BTreeSet::from([4]));
        let urls: Vec<_> = found.iter().map(|volume| volume.url.to_string()).collect();
        assert_eq!(urls, ["hdsp://lan0/box/one", "aoe://lan0/7.4", "aoe://lan0/7.5"]);
    }
}
