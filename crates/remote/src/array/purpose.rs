//! How the members of an array are opened: what for, by what they are reached, and which of them cannot be kept from other hosts.

use sanwire_initiator::IserPath;

/// What stores are opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To read their labels, whoever has them.
    Look,
    /// To be read, while nobody has them for itself.
    Read,
    /// To be an array in use: for this host alone to write to.
    Use,
    /// The same, also where nothing keeps other hosts from writing there: whoever uses the array sees to that.
    UseUnfenced,
}

/// How stores are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// What for.
    pub purpose: Purpose,
    /// By what those go to which iSER leads, and which do not say it themselves.
    pub iser_path: Option<IserPath>,
}

impl From<Purpose> for Opening {
    fn from(purpose: Purpose) -> Self {
        Opening { purpose, iser_path: None }
    }
}

/// Kinds of stores that no host can have for itself alone.
const UNFENCED: [&str; 2] = ["aoe:", "nbd:"];

/// With this key of a member, a store that could be is not.
const SHARED: &str = "exclusive=false";

/// Whether a store cannot be kept from other hosts, or is not to be.
pub(super) fn is_unfenced(text: &str) -> bool {
    UNFENCED.iter().any(|word| text.starts_with(word)) || is_shared(text)
}

fn is_shared(text: &str) -> bool {
    text.split(',').skip(1).any(|key| key == SHARED)
}

impl Purpose {
    /// Whether stores are reserved for it, those that can be.
    pub(super) fn reserves(self) -> bool {
        matches!(self, Purpose::Use | Purpose::UseUnfenced)
    }

    /// Why a store is not opened for this, if it is not.
    pub(super) fn refusal(self, text: &str) -> Option<String> {
        (self == Purpose::Use && is_unfenced(text)).then(|| {
            let why = if is_shared(text) { "is not reserved (exclusive=false)" } else { "cannot be reserved" };
            format!(
                "it {why} for this host, so nothing keeps another host from using the array at the same time, which destroys what it holds; \
                 if you see to it that none does, add unfenced (array:NAME,unfenced) or --unfenced"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_reserved_is_not_used_unless_somebody_answers_for_it() {
        let shared = "hs+ip://host/disk,exclusive=false,reconnect=9s";
        for text in ["aoe://lan0/7.3", "nbd:/run/nbd.sock", "nbd://host/export", shared] {
            assert!(Purpose::Use.refusal(text).is_some_and(|why| why.contains("unfenced")), "{text}");
            for purpose in [Purpose::Look, Purpose::Read, Purpose::UseUnfenced] {
                assert_eq!(purpose.refusal(text), None, "{text}");
            }
        }
        let reserved = "hs+ip://host/disk,exclusive=true";
        for text in ["hs+ip://host/disk", reserved, "file:/srv/nbd:1.img", "rbd:pool/image"] {
            assert_eq!(Purpose::Use.refusal(text), None, "{text}");
        }
    }
}
