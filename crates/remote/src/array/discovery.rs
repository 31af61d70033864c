//! Members that nobody has named: volumes of the servers that answer, by the labels on them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sanwire_array::Label;
use sanwire_initiator::{HyperScsiServer, IscsiServer, IserPath, Server, Url};

use super::looking::{LOOK_MAX, side_by_side};
use super::members::{Members, parts};
use super::purpose::{Opening, Purpose};
use crate::volume::{Access, MakeOptions, naa_of};

/// Volumes whose labels are looked at.
const VOLUMES_MAX: usize = 256;
/// How long they are looked at: who assembles an array waits.
const LOOKING_MAX: Duration = Duration::from_secs(20);

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

/// Asks these servers for their volumes, each reached so; without any, all that answer on every Ethernet. It takes some seconds at the most.
pub type Discover = fn(&[Url], &Access) -> Discovered;

/// How members are found.
#[derive(Clone, Copy)]
pub(super) struct Discovery {
    pub(super) discover: Discover,
    pub(super) options: MakeOptions,
    /// By what iSER goes.
    pub(super) iser_path: Option<IserPath>,
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
        let Discovered { volumes, problems } = (self.discover)(places, &self.access());
        let given: Vec<(Url, Access)> = given.iter().filter_map(|text| self.given(text)).collect();
        let names = self.names(&given, &volumes);
        let given: Vec<Url> = given.into_iter().map(|(url, _)| url).collect();
        let mut volumes = in_turn(volumes, &given, &names);
        let mut left = volumes.len().saturating_sub(VOLUMES_MAX);
        volumes.truncate(VOLUMES_MAX);
        let text = |volume: &FoundVolume| volume.url.to_string().replace(',', r"\,");
        let texts: Vec<String> = volumes.iter().map(text).collect();
        let opening = Opening { purpose: Purpose::Look, iser_path: self.iser_path };
        let (looked, not_begun) = Members::look(&texts, opening, Some(Instant::now() + LOOKING_MAX));
        left += not_begun;
        let (mut seen, mut sought, mut problems) = (Seen::default(), Sought::default(), problems);
        for (place, label) in looked.labels().into_iter().filter(|(_, label)| label.table.name == name) {
            let naa = volumes.iter().zip(&texts).find(|(_, text)| **text == place).and_then(|(volume, _)| volume.naa);
            if seen.is_new(naa, &label) {
                tracing::info!("array {name}: member {} was found at {place}", label.own + 1);
                sought.texts.push(place);
            }
        }
        problems.extend(looked.failures.iter().map(|(text, why)| format!("{text} cannot be looked at: {why}")));
        if left > 0 {
            problems.push(format!("{left} others were not looked at: name servers with discover=URL, or members"));
        }
        let count = volumes.len() - not_begun;
        sought.told = format!(
            "by discovery {count} ways to volumes were looked at, {} of them to members of it",
            sought.texts.len()
        );
        problems.iter().for_each(|problem| sought.told += &format!("; {problem}"));
        sought
    }

    /// What servers are shown, and how they are reached: nothing but what holds for all.
    fn access(&self) -> Access {
        Access { iser_path: self.iser_path, ..Access::default() }
    }

    /// Where a member that is given is, and how its server is reached: as the member says, else as the array does.
    fn given(&self, text: &str) -> Option<(Url, Access)> {
        let mut written = parts(text);
        let url: Url = written.next()?.replace(r"\,", ",").parse().ok()?;
        let said: Option<IserPath> = written.find_map(|part| part.strip_prefix("iser-path=")?.parse().ok());
        // A server that speaks something else is not asked at all with an option of iSER.
        let is_iser = matches!(url.server, Server::Iscsi(IscsiServer { is_iser: true, .. }));
        let iser_path = said.or(self.iser_path).filter(|_| is_iser);
        Some((url, Access { iser_path, ..Access::default() }))
    }

    /// The NAA names of what is given: those that nobody has told are asked for, side by side.
    fn names(&self, given: &[(Url, Access)], volumes: &[FoundVolume]) -> BTreeSet<u64> {
        let told = |url: &Url| volumes.iter().find(|volume| volume.url == *url);
        let known = given.iter().filter_map(|(url, _)| told(url)?.naa);
        let others: Vec<(Url, Access)> = given.iter().filter(|(url, _)| told(url).is_none()).cloned().collect();
        let options = self.options;
        let ask = move |(url, access): (Url, Access), _| {
            let options = options(&url.server, &access).map_err(|error| error.to_string())?;
            Ok(naa_of(&url, &options))
        };
        let asked = side_by_side(others, LOOK_MAX, None, |_| true, ask);
        known.chain(asked.into_iter().filter_map(|answer| answer?.ok()?)).collect()
    }
}

/// What has been seen, by NAA names.
#[derive(Default)]
struct Seen(Vec<(u64, Label)>);

impl Seen {
    /// Whether this is not what was seen by another wire. A volume that only has the name of another one is another one: then both are
    /// taken, and the array is refused rather than guessed.
    fn is_new(&mut self, naa: Option<u64>, label: &Label) -> bool {
        let Some(naa) = naa else { return true };
        let is_new = !self.0.iter().any(|(known, other)| *known == naa && other == label);
        self.0.push((naa, label.clone()));
        is_new
    }
}

/// The volumes without those that are known, those first that can be reserved: what two wires lead to has one NAA name.
fn in_turn(mut volumes: Vec<FoundVolume>, known: &[Url], names: &BTreeSet<u64>) -> Vec<FoundVolume> {
    volumes.sort_by_key(|volume| match volume.url.server {
        Server::HyperScsi(HyperScsiServer::Ethernet { .. }) => 0,
        Server::HyperScsi(HyperScsiServer::Ip { .. }) => 1,
        Server::Hdsp(_) => 2,
        Server::Visa(_) => 3,
        Server::Iscsi(_) => 4,
        Server::Aoe(_) => 5,
    });
    volumes.retain(|volume| !known.contains(&volume.url) && volume.naa.is_none_or(|naa| !names.contains(&naa)));
    volumes
}

#[cfg(test)]
mod tests {
    use sanwire_array::{Arrangement, Table};

    use super::*;

    fn volume(url: &str, naa: Option<u64>) -> FoundVolume {
        FoundVolume { url: url.parse().unwrap(), naa }
    }

    #[test]
    fn only_the_same_label_under_the_same_name_is_the_same_volume() {
        let label = |own| {
            let table = Table {
                array: [1; 16],
                name: "a".to_owned(),
                generation: 1,
                run: 1,
                runs: Vec::new(),
                arrangement: Arrangement::Concat,
                copies: 1,
                block_bytes: 512,
                region_bytes: 1 << 20,
                members: Vec::new(),
                former: Vec::new(),
            };
            Label { own, table }
        };
        let mut seen = Seen::default();
        assert!(seen.is_new(Some(7), &label(0)) && !seen.is_new(Some(7), &label(0)), "by another wire");
        assert!(seen.is_new(Some(7), &label(1)), "it says that it is the same, and is not");
        assert!(seen.is_new(Some(8), &label(0)), "a copy");
        assert!(seen.is_new(None, &label(0)) && seen.is_new(None, &label(0)), "nobody knows");
    }

    #[test]
    fn ways_on_which_a_volume_can_be_reserved_come_first() {
        let volumes = vec![
            volume("aoe://lan0/7.3", Some(1)),
            volume("hdsp://lan0/box/one", Some(1)),
            volume("aoe://lan0/7.4", Some(2)),
            volume("aoe://lan0/7.5", None),
            volume("hs+eth://lan0/box/four", Some(4)),
            volume("hs+ip://box/five", Some(5)),
        ];
        let known = ["hs+ip://box/five".parse().unwrap()];
        let found = in_turn(volumes, &known, &BTreeSet::from([4]));
        let urls: Vec<_> = found.iter().map(|volume| volume.url.to_string()).collect();
        assert_eq!(urls, ["hdsp://lan0/box/one", "aoe://lan0/7.3", "aoe://lan0/7.4", "aoe://lan0/7.5"]);
    }
}
