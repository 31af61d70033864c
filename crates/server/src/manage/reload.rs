//! A configuration that is read again.

use sanwire_store::Acceptance;

use super::difference::{self, Difference};
use super::{Answer, ManageError, Manager};

impl Manager {
    /// Brings the server to what the configuration says now. Without `force` nothing is done when that takes volumes away from
    /// sessions that use them.
    pub(super) fn reload(&mut self, force: bool) -> Result<Answer, ManageError> {
        let wanted = (self.source)().map_err(ManageError::Configuration)?;
        let terms = wanted.terms();
        terms.check()?;
        let difference = Difference::between(&self.volumes, &wanted.volumes);
        if !force {
            let prospect = self.target.clients().foresee_terms(terms.clone());
            let taken = self.taken_away(&difference, &prospect, &wanted.exports)?;
            if !taken.is_empty() {
                return Err(ManageError::TakesAway(taken.join(", ")));
            }
        }
        let mut changed = Vec::new();
        let mut opened = Vec::new();
        for spec in difference.added {
            let name = spec.name.to_string();
            match self.open_volume(spec, Acceptance::Known) {
                Ok(volume) => opened.push(volume),
                Err(error) => {
                    opened.into_iter().for_each(|volume| self.take_back(volume));
                    return Err(error);
                }
            }
            changed.push(format!("volume {name} is served"));
        }
        let before = self.target.exports();
        // What may pass in the clear from now on may have a target, and what has none any more need not.
        let (lowered, raised): (Vec<_>, Vec<_>) = difference.secured.iter().partition(|spec| self.is_lower(spec));
        if let Err(error) = self.target.set_exports_where(wanted.exports.clone(), &lowered) {
            opened.into_iter().for_each(|volume| self.take_back(volume));
            return Err(error.into());
        }
        changed.extend(self.secure_all(&lowered));
        changed.extend(difference::of_exports(&before, &wanted.exports));
        changed.extend(self.configure_clients(terms)?);
        for name in difference.removed {
            let closed = self.close_volume(&name);
            changed.push(
                closed
                    .map_or_else(|unstable| unstable.to_string(), |()| format!("volume {name} is not served any more")),
            );
        }
        changed.extend(self.secure_all(&raised));
        for (name, spec, size_bytes) in difference.resized {
            changed.extend(self.resize_configured(&name, &spec, size_bytes));
        }
        changed.extend(difference.kept.iter().map(|name| {
            format!("not changed: volume {name}: only its size and its security can be changed while it is served; remove and add it")
        }));
        self.has_password = wanted.has_password();
        self.allow = wanted.allow;
        Ok(Answer::Changed(changed))
    }

    /// Tells what a reload would do, and does nothing.
    pub(super) fn compare(&self) -> Result<Answer, ManageError> {
        let wanted = (self.source)().map_err(ManageError::Configuration)?;
        let terms = wanted.terms();
        terms.check()?;
        let difference = Difference::between(&self.volumes, &wanted.volumes);
        let before = self.target.exports();
        let prospect = self.target.clients().foresee_terms(terms);
        let taken = self.taken_away(&difference, &prospect, &wanted.exports)?;
        let mut lines: Vec<String> = difference.would().collect();
        lines.extend(
            difference::of_exports(&before, &wanted.exports).into_iter().map(|line| format!("would be: {line}")),
        );
        lines.extend(taken.into_iter().map(|line| format!("{line}: a reload is refused without --force")));
        Ok(Answer::Changed(lines))
    }
}
