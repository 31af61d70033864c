//! What commands use as a volume.

use std::fmt;
use std::str::FromStr;

use sanwire_initiator::{Url, UrlError};
use sanwire_store::{SpecError, StoreSpec};

/// What is used as a volume: text that begins with `array:` is an array, other text a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum VolumePlace {
    /// A volume of a server.
    Volume(Url),
    /// An array.
    Array(ArrayPlace),
}

/// An array that this host assembles, as it is written as a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ArrayPlace(String);

/// Text that is neither.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// It is meant as a URL.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// It is meant as an array.
    #[error(transparent)]
    Array(#[from] SpecError),
}

impl ArrayPlace {
    /// What an array begins with.
    const WORD: &str = "array:";

    /// Whether text is meant as an array.
    pub(crate) fn is_meant_by(text: &str) -> bool {
        text.starts_with(Self::WORD)
    }

    /// All that is written.
    pub(crate) fn written(&self) -> &str {
        &self.0
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        let shown = self.0.split(',').next().unwrap_or_default();
        shown.strip_prefix(Self::WORD).unwrap_or(shown)
    }

    /// Why an option of a command does not go with arrays, which take only those that are `taken`.
    pub(crate) fn refusal(option: &str, taken: &[&str]) -> Option<String> {
        let instead = match option {
            "iser-path" => "give it with the array, like array:NAME,iser-path=rdma",
            _ => "leave it out, or give what one of its members needs with that, like member=URL\\,password-file=FILE",
        };
        (!taken.contains(&option)).then(|| format!("--{option} is not for arrays: {instead}"))
    }

    /// The store that is written.
    ///
    /// # Errors
    /// When it is none: what exists was one when it was read.
    pub(crate) fn spec(&self) -> Result<StoreSpec, SpecError> {
        self.0.parse()
    }
}

impl FromStr for ArrayPlace {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let place = ArrayPlace(text.to_owned());
        place.spec()?;
        Ok(place)
    }
}

/// As it is told: its keys, which say how it is found, are left out.
impl fmt::Display for ArrayPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::WORD, self.name())
    }
}

impl FromStr for VolumePlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        Ok(match ArrayPlace::is_meant_by(text) {
            true => VolumePlace::Array(text.parse()?),
            false => VolumePlace::Volume(text.parse()?),
        })
    }
}

impl fmt::Display for VolumePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumePlace::Volume(url) => url.fmt(f),
            VolumePlace::Array(array) => array.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_arrays_do_not_take_is_refused_with_what_does_it_there() {
        let refusal = |option| ArrayPlace::refusal(option, &["wait"]);
        assert_eq!(refusal("wait"), None);
        for (option, instead) in [("iser-path", "array:NAME,iser-path=rdma"), ("digests", r"member=URL\,")] {
            let message = refusal(option).unwrap_or_default();
            assert!(
                message.starts_with(&format!("--{option} is not for arrays")) && message.contains(instead),
                "{message}"
            );
        }
    }

    #[test]
    fn an_array_is_told_by_its_name_and_a_wrong_one_is_refused_at_once() {
        crate::stores::register();
        let array: ArrayPlace =
            r"array:data,member=hs+ip://box/disk\,takeover,iser-path=rdma,unfenced".parse().unwrap();
        assert_eq!((array.name(), array.to_string().as_str()), ("data", "array:data"));
        assert!(array.written().ends_with(",unfenced"));
        assert!(matches!("hs+ip://box/disk".parse(), Ok(VolumePlace::Volume(_))));
        for (text, said) in [
            ("array:", "array:NAME"),
            ("array:data,size=1M", "size"),
            ("array:data,member=nonsense", "nonsense"),
            ("array:data,discover=nonsense", "discover"),
            ("array:data,iser-path=nonsense", "use tcp or rdma"),
            ("disk", ""),
        ] {
            let error = text.parse::<VolumePlace>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
