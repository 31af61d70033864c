//! What a server allows of copies to other ones, and who may order them: when one begins, and whenever that has changed.

use sanwire_core::{Principal, Protection};
use sanwire_io::interface;

use super::order::CopyTerms;
use super::{URLS_MAX, WAYS};
use crate::direct::{CopyOrderers, Own};
use crate::link;
use crate::manage::course::Ordered;
use crate::manage::{Answer, Asker, ManageError, Manager};
use crate::wire::Wire;

impl Manager {
    /// What is said of copies that go straight from one server to another.
    pub(in crate::manage) fn copy_terms(&self, by: Option<&Asker>) -> Answer {
        let client = self.kept.configured.direct_copies.client_id.map(|read| read());
        let owner = by.and_then(Asker::owner);
        let refused = self.copies_refused(owner).or_else(|| match &client {
            Some(Err(reason)) if owner.is_some() => {
                // It names files of this host.
                tracing::error!("no copies to other servers can be ordered: {reason}");
                Some("it has no key as a client of other servers: its log says why".to_owned())
            }
            Some(Err(reason)) => Some(reason.clone()),
            _ => None,
        });
        let client = client.and_then(Result::ok).map(|client| client.to_string());
        Answer::CopyTerms(CopyTerms { client, refused, urls: self.urls() })
    }

    /// # Errors
    /// Why a volume is not copied so, and what to do.
    pub(super) fn check_copy(&self, ordered: &Ordered) -> Result<(), String> {
        if let Some(reason) = self.copies_refused(ordered.owner.as_ref()) {
            return Err(reason);
        }
        let (level, of_copy) = (self.protection_of(&ordered.volume), ordered.protection);
        if level > of_copy {
            return Err(format!("its packets are protected by {level} now, and those of the copy by {of_copy}"));
        }
        let known = interface::watch().known();
        let interfaces = known.as_ref().map(|known| known.as_slice()).unwrap_or_default();
        let addresses = interfaces.iter().flat_map(|interface| interface.addresses.iter().copied()).collect();
        let (direct, own) = (&self.kept.configured.direct_copies, Own { name: &self.name, addresses });
        ordered.to.iter().try_for_each(|url| direct.check_place(url, &own))
    }

    /// How the packets of a volume are protected: the other server need not demand as much, so the copy does.
    pub(super) fn protection_of(&self, volume: &str) -> Protection {
        let own = self.volumes.get(volume).and_then(|volume| volume.spec.security);
        own.unwrap_or(self.protection.max(self.kept.configured.protection))
    }

    /// Ends copies that could not be ordered any more: what was allowed, how the volume is protected, or who owns it, has changed.
    pub(in crate::manage) fn review_copies(&self) {
        for course in self.jobs.courses() {
            let ordered = course.ordered();
            if let Err(reason) = self.check_still(ordered) {
                tracing::warn!("the copy of volume {} to another server ends: {reason}", ordered.volume);
                course.forbid(format!("it may not go on: {reason}"));
            }
        }
    }

    /// # Errors
    /// Why a copy that was ordered could not be ordered any more.
    pub(super) fn check_still(&self, ordered: &Ordered) -> Result<(), String> {
        let owns = |owner: &Principal| self.check_owns(owner, &ordered.volume);
        ordered.owner.as_ref().map_or(Ok(()), owns).map_err(|error: ManageError| error.to_string())?;
        self.check_copy(ordered)
    }

    /// Why somebody may not order copies to other servers, whatever the volume.
    fn copies_refused(&self, owner: Option<&Principal>) -> Option<String> {
        match self.kept.configured.direct_copies.by {
            CopyOrderers::Off => Some("this server makes no direct copies (`direct-copies = \"off\"`)".to_owned()),
            CopyOrderers::Managers if owner.is_some() => {
                Some("only who may manage this server orders direct copies (`direct-copies = \"managers\"`)".to_owned())
            }
            CopyOrderers::Managers | CopyOrderers::Owners => None,
        }
    }

    /// Where other servers reach this one, by wires whose clients have keys.
    fn urls(&self) -> Vec<String> {
        let known = interface::watch().known();
        let interfaces = known.as_ref().map(|known| known.as_slice()).unwrap_or_default();
        let announced = &self.kept.configured.announced;
        let of_wire = |wire: &Wire| -> Vec<String> {
            let scheme = wire.scheme();
            let Some(address) = wire.address() else { return vec![format!("{scheme}:///{}", self.name)] };
            let links = link::addresses_of(address, interfaces);
            let told = announced.of_links(&links, interfaces);
            told.into_iter().map(|link| format!("{scheme}://{}", link.peer)).collect()
        };
        let mut urls = Vec::new();
        for way in WAYS {
            urls.extend(self.target.wires().iter().filter(|wire| wire.scheme() == way).flat_map(of_wire));
        }
        urls.dedup();
        urls.truncate(URLS_MAX);
        urls
    }
}
