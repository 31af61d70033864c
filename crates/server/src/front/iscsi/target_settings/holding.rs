//! What was set of a target beside what the configuration says of it, when it was set and now.

use data_encoding::HEXLOWER;
use sanwire_iscsi::Credential;

use super::{ChapUser, SetSecret, TargetSettings};
use crate::front::iscsi::target_node::TargetNodeConfig;

/// Settings that are one thing of a target: what they are, for people, and these of many settings.
type Part = (&'static str, fn(TargetSettings) -> TargetSettings);

const PARTS: [Part; 6] = [
    ("the alias", |settings| TargetSettings { alias: settings.alias, ..TargetSettings::default() }),
    ("allow", |settings| TargetSettings { allow: settings.allow, ..TargetSettings::default() }),
    ("CHAP", |TargetSettings { chap, mutual_chap, no_mutual_chap, chap_algorithms, .. }| TargetSettings {
        chap,
        mutual_chap,
        no_mutual_chap,
        chap_algorithms,
        ..TargetSettings::default()
    }),
    ("the portal groups", |settings| TargetSettings {
        portal_groups: settings.portal_groups,
        ..TargetSettings::default()
    }),
    ("whether digests are required", |settings| TargetSettings {
        require_digests: settings.require_digests,
        ..TargetSettings::default()
    }),
    ("the redirection", |TargetSettings { redirect, redirect_for_good, .. }| TargetSettings {
        redirect,
        redirect_for_good,
        ..TargetSettings::default()
    }),
];

impl TargetSettings {
    /// These, and where the other ones say something, those.
    #[must_use]
    pub(crate) fn and(self, newer: TargetSettings) -> TargetSettings {
        let says_mutual = newer.mutual_chap.is_some() || newer.no_mutual_chap;
        let (mutual_chap, no_mutual_chap) = match says_mutual {
            true => (newer.mutual_chap, newer.no_mutual_chap),
            false => (self.mutual_chap, self.no_mutual_chap),
        };
        // Where nobody is sent any more it does not matter whether that is for good.
        let for_good = self.redirect_for_good.filter(|_| newer.redirect.as_deref() != Some(""));
        TargetSettings {
            alias: newer.alias.or(self.alias),
            allow: newer.allow.or(self.allow),
            chap: newer.chap.or(self.chap),
            mutual_chap,
            no_mutual_chap,
            chap_algorithms: newer.chap_algorithms.or(self.chap_algorithms),
            portal_groups: newer.portal_groups.or(self.portal_groups),
            require_digests: newer.require_digests.or(self.require_digests),
            redirect: newer.redirect.or(self.redirect),
            redirect_for_good: newer.redirect_for_good.or(for_good),
        }
    }

    /// All that a target is set to. In place of secrets there are their digests, by which one sees whether they are others than before.
    #[must_use]
    pub(crate) fn of(target: &TargetNodeConfig) -> TargetSettings {
        let (terms, authentication) = (target.terms(), &target.authentication);
        let mutual_chap = authentication.mutual.as_ref().map(digested);
        TargetSettings {
            alias: Some(terms.alias),
            allow: Some(terms.allow),
            chap: Some(authentication.users.iter().map(digested).collect()),
            no_mutual_chap: mutual_chap.is_none(),
            mutual_chap,
            chap_algorithms: Some(terms.chap_algorithms),
            portal_groups: Some(terms.portal_groups),
            require_digests: Some(terms.require_digests),
            redirect: Some(terms.redirect.unwrap_or_default()),
            redirect_for_good: Some(terms.redirect_for_good),
        }
    }

    /// What a target is set to in the things of which these say something: a change that is kept beside it holds as long as that stays.
    #[must_use]
    pub(crate) fn as_in(&self, target: &TargetNodeConfig) -> TargetSettings {
        let all = TargetSettings::of(target);
        let said = PARTS.iter().filter(|(_, part)| !part(self.clone()).is_empty());
        said.fold(TargetSettings::default(), |settings, (_, part)| settings.and(part(all.clone())))
    }

    /// Whether a target is so without them.
    #[must_use]
    pub(crate) fn are_those_of(&self, target: &TargetNodeConfig) -> bool {
        let with = target.clone().with(self);
        with.is_ok_and(|with| self.as_in(&with) == self.as_in(target))
    }

    /// What of these holds still of a target that is configured so now, and was as `before` says when they were made; and what does not,
    /// since the configuration says something else of it than then, and than they do.
    pub(crate) fn holding(
        &self,
        before: &TargetSettings,
        configured: &TargetNodeConfig,
    ) -> (TargetSettings, Vec<&'static str>) {
        let now = configured.clone().with(self).map_or_else(|_| self.clone(), |target| self.as_in(&target));
        let configured = self.as_in(configured);
        let (mut holding, mut overridden) = (TargetSettings::default(), Vec::new());
        for (what, part) in PARTS {
            let [before, configured, now] = [before, &configured, &now].map(|settings| part(settings.clone()));
            if before == configured {
                holding = holding.and(part(self.clone()));
            } else if now != configured {
                overridden.push(what);
            }
        }
        (holding, overridden)
    }
}

fn digested(Credential { name, secret }: &Credential) -> ChapUser {
    ChapUser { user: name.clone(), secret: SetSecret(HEXLOWER.encode(&secret.digest())) }
}
