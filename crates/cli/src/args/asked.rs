//! What is written on the command line, as the server is to read it that is asked.

use sanwire_store::{SpecError, VolumeSpec};

use crate::failure::misuse;

/// Where the server is that is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// On this host: the same paths mean the same files.
    Here,
    /// On another host.
    Elsewhere,
}

/// A volume as the server is to read it, of what is written on the command line: its paths mean the same in every directory.
pub(crate) fn volume_for(server: Asked, text: &str) -> anyhow::Result<String> {
    let spec: VolumeSpec = text.parse().map_err(|error: SpecError| misuse(error.to_string()))?;
    let (name, written) = (spec.name.clone(), spec.to_string());
    let absolute = spec.with_absolute_path().to_string();
    match server {
        _ if absolute == written => Ok(text.to_owned()),
        Asked::Here => Ok(absolute),
        Asked::Elsewhere => Err(misuse(format!(
            "the path of volume {name} is relative, and the server is in another directory: give the absolute path that its file has there"
        ))),
    }
}

/// A disc for a drive, in the same way.
pub(crate) fn medium_for(server: Asked, store: &str) -> anyhow::Result<String> {
    // The store of a volume, whatever its name.
    const VOLUME: &str = "medium=";
    let spec: Result<VolumeSpec, SpecError> = format!("{VOLUME}{store},readonly").parse();
    // What is no store here may be one there: the server says so.
    let is_relative = spec.is_ok_and(|spec| {
        let written = spec.to_string();
        spec.with_absolute_path().to_string() != written
    });
    match (is_relative, store.split_once(':')) {
        (true, Some((kind, path))) if server == Asked::Here => {
            Ok(format!("{kind}:{}", std::path::absolute(path)?.display()))
        }
        (true, _) => Err(misuse(format!(
            "the path of {store} is relative, and the server is in another directory: give the absolute path that the file has there"
        ))),
        (false, _) => Ok(store.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_is_that_of_who_writes_it_and_none_on_another_host() {
        crate::stores::register();
        let here = std::env::current_dir().unwrap();
        let volume = "a=file:some.img,size=1G";
        let told = volume_for(Asked::Here, volume).unwrap();
        assert!(told.starts_with(&format!("a=file:{}/some.img,", here.display())), "{told}");
        assert!(volume_for(Asked::Elsewhere, volume).unwrap_err().to_string().contains("is relative"));
        for absolute in ["a=file:/some.img,size=1G", "a=ram:1M"] {
            assert_eq!(volume_for(Asked::Elsewhere, absolute).unwrap(), absolute);
        }
        assert_eq!(medium_for(Asked::Here, "file:a.iso").unwrap(), format!("file:{}/a.iso", here.display()));
        assert!(medium_for(Asked::Elsewhere, "file:a.iso").unwrap_err().to_string().contains("is relative"));
        for store in ["file:/a.iso", "floppy:1"] {
            assert_eq!(medium_for(Asked::Elsewhere, store).unwrap(), store);
        }
    }
}
