//! A target becomes what is set of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sanwire_iscsi::{Authentication, ChapAlgorithm, ChapSecret, Credential};

use super::{ChapUser, LIST_MAX, SECRET_MAX_BYTES, TEXT_MAX_BYTES, TargetSettings, TargetSettingsError, TargetTerms};
use crate::allow::{AllowList, AllowRule};
use crate::front::iscsi::redirection::Redirection;
use crate::front::iscsi::target_node::TargetNodeConfig;

impl TargetNodeConfig {
    /// How it is set, without secrets.
    #[must_use]
    pub fn terms(&self) -> TargetTerms {
        let Authentication { users, mutual, algorithms } = &self.authentication;
        TargetTerms {
            alias: self.alias.clone(),
            allow: self.allow.rules().iter().map(ToString::to_string).collect(),
            chap: users.iter().map(|user| user.name.clone()).collect(),
            mutual_chap: mutual.as_ref().map(|target| target.name.clone()),
            chap_algorithms: algorithms.iter().map(ToString::to_string).collect(),
            portal_groups: self.group_tags.clone(),
            require_digests: self.requires_digests,
            redirect: self.redirect.as_ref().map(|(to, _)| to.clone()),
            redirect_for_good: self.redirect.as_ref().is_some_and(|(_, for_good)| *for_good),
        }
    }

    /// The target with these settings, besides those that it has already.
    ///
    /// # Errors
    /// [`TargetSettingsError`] for what cannot be.
    pub fn with(mut self, settings: &TargetSettings) -> Result<Self, TargetSettingsError> {
        if let Some(alias) = &settings.alias {
            self.alias = if alias.is_empty() { String::new() } else { text("an alias", alias)?.to_owned() };
        }
        if let Some(rules) = &settings.allow {
            let rules = bounded("rules", rules)?.iter().map(|rule| rule.parse::<AllowRule>());
            self.allow = AllowList::new(rules.collect::<Result<_, _>>()?);
        }
        self.set_authentication(settings)?;
        if let Some(tags) = &settings.portal_groups {
            if bounded("portal groups", tags)?.contains(&0) {
                return Err(TargetSettingsError::Group);
            }
            self.group_tags.clone_from(tags);
        }
        self.requires_digests = settings.require_digests.unwrap_or(self.requires_digests);
        self.set_redirection(settings)?;
        let before = self.set.take().map(|set| TargetSettings::clone(&set)).unwrap_or_default();
        let mut set = before.and(settings.clone());
        if self.authentication.algorithms.is_empty() {
            // They have gone with the users.
            set.chap_algorithms.iter_mut().for_each(Vec::clear);
        }
        self.set = Some(Arc::new(set));
        Ok(self)
    }

    fn set_authentication(&mut self, settings: &TargetSettings) -> Result<(), TargetSettingsError> {
        let authentication = &mut self.authentication;
        if let Some(users) = &settings.chap {
            let users = bounded("CHAP users", users)?;
            let mut names = BTreeSet::new();
            if let Some(twice) = users.iter().find(|user| !names.insert(&*user.user)) {
                return Err(TargetSettingsError::Twice(text("the name of a CHAP user", &twice.user)?.to_owned()));
            }
            authentication.users = users.iter().map(credential).collect::<Result<_, _>>()?;
            self.is_meant_open = users.is_empty();
        }
        match (&settings.mutual_chap, settings.no_mutual_chap) {
            (Some(_), true) => return Err(TargetSettingsError::MutualAndNone),
            (Some(target), false) => authentication.mutual = Some(credential(target)?),
            (None, true) => authentication.mutual = None,
            (None, false) => {}
        }
        let says_secrets = settings.chap.is_some() || settings.mutual_chap.is_some();
        let answers = authentication.mutual.as_ref().filter(|_| says_secrets);
        let has_same = |user: &&Credential| answers.is_some_and(|target| target.secret == user.secret);
        if let Some(user) = authentication.users.iter().find(has_same) {
            return Err(TargetSettingsError::SameSecret(user.name.clone()));
        }
        if let Some(algorithms) = &settings.chap_algorithms {
            let algorithms = bounded("algorithms", algorithms)?.iter().map(|text| text.parse::<ChapAlgorithm>());
            authentication.algorithms = algorithms.collect::<Result<_, _>>()?;
        }
        let is_asked = !authentication.users.is_empty() || authentication.mutual.is_some();
        match settings.chap_algorithms.as_ref().is_some_and(|algorithms| !algorithms.is_empty()) {
            true if !is_asked => return Err(TargetSettingsError::NobodyAsked),
            // Algorithms that were configured with users go with them.
            false if !is_asked => authentication.algorithms.clear(),
            _ => {}
        }
        Ok(())
    }

    fn set_redirection(&mut self, settings: &TargetSettings) -> Result<(), TargetSettingsError> {
        let before = self.redirect.take();
        let for_good = settings.redirect_for_good.or(before.as_ref().map(|(_, for_good)| *for_good)).unwrap_or(false);
        let to = match &settings.redirect {
            Some(none) if none.is_empty() => None,
            Some(to) => Some(to.parse::<Redirection>()?.to_string()),
            None => before.map(|(to, _)| to),
        };
        if to.is_none() && settings.redirect_for_good == Some(true) {
            return Err(TargetSettingsError::NoWhere);
        }
        self.redirect = to.map(|to| (to, for_good));
        Ok(())
    }
}

fn credential(ChapUser { user, secret }: &ChapUser) -> Result<Credential, TargetSettingsError> {
    let name = text("the name of a CHAP user", user)?.to_owned();
    if secret.0.len() > SECRET_MAX_BYTES {
        return Err(TargetSettingsError::LongSecret(name));
    }
    let secret = ChapSecret::new(secret.0.as_bytes().to_vec());
    secret
        .map(|secret| Credential { name: name.clone(), secret })
        .map_err(|source| TargetSettingsError::Secret { user: name, source })
}

fn text<'a>(what: &'static str, text: &'a str) -> Result<&'a str, TargetSettingsError> {
    let is_text = (1..=TEXT_MAX_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    if is_text { Ok(text) } else { Err(TargetSettingsError::Text(what)) }
}

fn bounded<'a, T>(what: &'static str, list: &'a [T]) -> Result<&'a [T], TargetSettingsError> {
    if list.len() <= LIST_MAX { Ok(list) } else { Err(TargetSettingsError::TooMany(what)) }
}
