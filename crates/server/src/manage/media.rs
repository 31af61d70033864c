//! Media that are taken out and put in: the discs of drives, and what is removable.

use std::sync::Arc;

use sanwire_core::DeviceType;
use sanwire_device::{LogicalUnit, MediumError};
use sanwire_store::{Store, VolumeSpec};

use super::slow::Step;
use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;
use crate::error::StartError;

impl Manager {
    /// Takes the medium of a volume out; who has locked it is asked to let go, or not asked.
    pub(super) fn eject_volume(&self, name: &str, force: bool) -> Result<Answer, ManageError> {
        let _hold = self.busy.hold(name, "being ejected")?;
        self.unit(name)?.eject(force).map_err(medium_error(name))?;
        self.revise_volume(name);
        Ok(Answer::Changed(vec![format!("the medium of {name} is out")]))
    }

    /// Puts another medium into a volume, or the one back that was taken out.
    pub(super) fn load_volume(&mut self, name: &str, store: Option<&str>) -> Result<Step, ManageError> {
        let hold = self.busy.hold(name, "getting another medium")?;
        let unit = self.unit(name)?;
        let Some(store) = store else {
            unit.load(None).map_err(medium_error(name))?;
            self.revise_volume(name);
            return Ok(Step::Done(Answer::Changed(vec![format!("the medium of {name} is in")])));
        };
        let spec = self.with_disc(name, store)?;
        let opening = spec.clone();
        let (name, store) = (name.to_owned(), store.to_owned());
        Ok(Step::slow(
            format!("opening {store}"),
            move || opening.store.open(),
            move |manager, opened| {
                let _hold = hold;
                let failed = |source| StartError::Store { volume: name.clone(), source };
                let disc = opened.map_err(failed)?;
                manager.load_disc(&name, &spec, disc)?;
                Ok(Step::Done(manager.changed(format!("{store} is in {name}"))))
            },
        ))
    }

    fn load_disc(&mut self, name: &str, spec: &VolumeSpec, disc: Arc<dyn Store>) -> Result<(), ManageError> {
        let unit = self.unit(name)?;
        // Nobody has looked at the other disc when it is not wanted.
        unit.check_medium(&disc).map_err(medium_error(name))?;
        let volume = self.volume_with(name, |volume| VolumeConfig { spec: spec.clone(), ..volume })?;
        self.keep_definition(&volume)?;
        let changed = unit.eject(false).and_then(|()| unit.load(Some(disc)));
        changed.map_err(medium_error(name)).inspect_err(|_| self.keep_served())?;
        self.put_definition(volume);
        Ok(())
    }

    /// Refuses to take the medium of a volume out that has none, or one that somebody has locked.
    pub(super) fn check_eject(&self, name: &str, force: bool) -> Result<(), ManageError> {
        let (unit, spec) = (self.unit(name)?, self.volume_with(name, |volume| volume)?.spec);
        let refused = match spec.device_type {
            DeviceType::Disk if !spec.removable => Some(MediumError::Fixed),
            _ if !force && unit.is_removal_prevented() => Some(MediumError::Prevented),
            _ => None,
        };
        refused.map_or(Ok(()), |source| Err(medium_error(name)(source)))
    }

    /// The volume with this disc in it, as it is kept; only a drive has discs.
    pub(super) fn with_disc(&self, name: &str, store: &str) -> Result<VolumeSpec, ManageError> {
        let spec = self.volume_with(name, |volume| volume)?.spec;
        match spec.device_type {
            DeviceType::Disk => Err(medium_error(name)(MediumError::Fixed)),
            DeviceType::Optical => Ok(spec.with_disc(store)?.with_absolute_path()),
        }
    }

    fn unit(&self, name: &str) -> Result<Arc<LogicalUnit>, ManageError> {
        let found = self.find(name).map(|(_, unit)| unit);
        found.ok_or_else(|| ManageError::NoVolume(name.to_owned()))
    }
}

fn medium_error(name: &str) -> impl Fn(MediumError) -> ManageError {
    move |source| ManageError::Medium { name: name.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing::config;
    use super::super::{Answer, ManageError, Manager, Request};

    fn eject(name: &str) -> Request {
        Request::EjectVolume { name: name.into(), force: false }
    }

    fn load(name: &str, store: Option<String>) -> Request {
        Request::LoadVolume { name: name.into(), store }
    }

    #[test]
    fn a_disc_is_changed_and_a_bad_one_is_refused_before_anything_moves() {
        let directory = std::env::temp_dir().join(format!("sanwire-media-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let image = |name: &str, bytes: usize| {
            fs::write(directory.join(name), vec![0; bytes]).unwrap();
            format!("file:{}", directory.join(name).display())
        };
        let (first, second) = (image("a.iso", 2 * 2048), image("b.iso", 3 * 2048));
        let (short, empty) = (image("short.iso", 1536), image("empty.iso", 0));
        let drive = format!("cd0={first},type=optical");
        let removable = "disk0=ram:1M,removable";
        let start = config(&[&drive, removable, "fixed=ram:1M"]);
        let mut manager = Manager::start(start, Box::new(|| Ok(config(&[])))).unwrap();
        let size = |manager: &mut Manager| match manager.execute(Request::Status) {
            Ok(Answer::Status(status)) => status.volumes[0].size_bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!(size(&mut manager), 4096);
        let refusal = |manager: &mut Manager, request| manager.execute(request).unwrap_err().to_string();
        assert!(refusal(&mut manager, load("cd0", Some(short))).contains("shorter than one block of 2048 bytes"));
        assert!(matches!(manager.execute(load("cd0", Some(empty))), Err(ManageError::Open(_))));
        let missing = format!("file:{}", directory.join("missing.iso").display());
        assert!(matches!(manager.execute(load("cd0", Some(missing))), Err(ManageError::Open(_))));
        assert!(refusal(&mut manager, load("cd0", Some("floppy:1".into()))).contains("is no store"));
        assert_eq!(size(&mut manager), 4096);
        manager.execute(load("cd0", Some(second))).unwrap();
        assert_eq!(size(&mut manager), 3 * 2048);
        assert!(manager.volumes["cd0"].spec.to_string().contains("b.iso,type=optical"), "it is kept so");
        assert!(refusal(&mut manager, load("cd0", Some("none:".into()))).contains("none: is no medium"));
        manager.execute(eject("cd0")).unwrap();
        manager.execute(load("cd0", None)).unwrap();
        manager.execute(eject("disk0")).unwrap();
        manager.execute(load("disk0", None)).unwrap();
        for name in ["disk0", "fixed"] {
            assert!(refusal(&mut manager, load(name, Some(first.clone()))).contains("type=optical"), "{name}");
        }
        assert!(refusal(&mut manager, eject("fixed")).contains("type=optical"));
        assert!(matches!(manager.execute(eject("x")), Err(ManageError::NoVolume(_))));
        manager.into_target().stop().unwrap();
        let start = config(&["cd0=none:,type=optical"]);
        let mut manager = Manager::start(start, Box::new(|| Ok(config(&[])))).unwrap();
        assert_eq!(size(&mut manager), 0, "it begins empty");
        manager.execute(load("cd0", Some(first.clone()))).unwrap();
        assert_eq!(size(&mut manager), 4096);
        manager.into_target().stop().unwrap();
        fs::remove_dir_all(directory).unwrap();
    }
}
