use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::failure::Misuse;

const FILE: &str = r#"
name = "box"
wire = ["hs-ip:0.0.0.0", "hs-eth:eth0"]
allow = ["10.0.0.0/8", "any"]
shards = 2
log = "debug"

[[volume]]
name = "disk0"
store = "ram:1G"
block = 4096

[[volume]]
name = "disk1"
store = "null:1T"
"#;

fn file(text: &str) -> anyhow::Result<FileConfig> {
    file::parse(Path::new("/etc/sanwire.toml"), text)
}

fn refusal(text: &str) -> String {
    let error = file(text).expect_err(text);
    assert!(error.is::<Misuse>(), "exit code 2");
    error.to_string()
}

#[test]
fn the_command_line_adds_to_the_file_and_overrides_it() {
    let args = ServeArgs {
        volumes: vec!["disk2=ram:1M".parse().unwrap()],
        wires: vec!["hs-ip:[::1]".parse().unwrap()],
        name: Some("other".parse().unwrap()),
        key_file: Some("/k".into()),
        ..ServeArgs::default()
    };
    let config = ServeConfig::combine(file(FILE).unwrap(), args, Some(LogLevel::Error)).unwrap();
    let names: Vec<&str> = config.volumes.iter().map(|volume| &*volume.name).collect();
    assert_eq!(names, ["disk0", "disk1", "disk2"]);
    assert_eq!(config.wires.len(), 3);
    assert_eq!(config.name.as_str(), "other");
    assert_eq!((config.shards, config.log), (2, LogLevel::Error));
    assert_eq!(config.allow.rules().len(), 2);
    assert_eq!(config.make_directory, None);
}

#[test]
fn nothing_said_means_a_volume_of_one_gibibyte_on_loopback() {
    let directory = Path::new("/home/a,b");
    let volume = defaults::volume(directory).unwrap();
    let sanwire_store::Backing::File { path, options } = volume.store.backing else { panic!("a file") };
    assert_eq!((path.as_path(), options.size_bytes), (Path::new("/home/a,b/disk0.img"), Some(1 << 30)));
    assert_eq!(Wire::default().to_string(), "hs-ip:127.0.0.1:5674");
}

#[test]
fn errors_point_at_file_and_line() {
    for (text, message) in [
        ("name = \"box\"\nspeed = 3\n", "/etc/sanwire.toml:2: unknown field `speed`"),
        ("wire = [\n  \"hs-ip:1.2.3.4\",\n  \"tcp:1.2.3.4\",\n]\n", "/etc/sanwire.toml:3: 'tcp:1.2.3.4' is no wire"),
        ("\nallow = [\"nobody\"]", "/etc/sanwire.toml:2: 'nobody' names nobody"),
        ("\n\nname = \"a b\"", "/etc/sanwire.toml:3: 'a b' is no server name"),
        ("shards = 0", "/etc/sanwire.toml:1: "),
        ("log = \"loud\"", "/etc/sanwire.toml:1: unknown variant `loud`"),
        ("name = ", "/etc/sanwire.toml:1: "),
        ("\n[[volume]]\nname = \"a\"\nstore = \"tape:1\"\n", "/etc/sanwire.toml:2: 'tape:1' is no store"),
        ("[[volume]]\nname = \"a\"\nstore = \"ram:1G\"\nspeed = 3\n", "/etc/sanwire.toml:4: unknown field `speed`"),
        (
            "[[volume]]\nname='a'\nstore='ram:1G'\n\n[[volume]]\nname='b'\nstore='tape:1'\n",
            "/etc/sanwire.toml:5: 'tape:1'",
        ),
        (
            "[[volume]]\nname='a'\nstore='ram:1G'\n[[volume]]\nname='a'\nstore='ram:2G'\n",
            "/etc/sanwire.toml:4: the volume a stands in line 1 already: remove one or change it",
        ),
        (
            "wire = ['hs-ip:1.2.3.4',\n'hs-ip:1.2.3.4:5674']",
            "/etc/sanwire.toml:2: the wire hs-ip:1.2.3.4:5674 stands in line 1 already",
        ),
    ] {
        let found = refusal(text);
        assert!(found.starts_with(message), "{text}\n{found}");
    }
}

#[test]
fn the_whole_is_checked() {
    let combine = |args: ServeArgs| {
        let error = ServeConfig::combine(file(FILE).unwrap(), args, None).expect_err("refused");
        assert!(error.is::<Misuse>(), "exit code 2");
        error.to_string()
    };
    let volumes = vec!["disk1=ram:1M".parse().unwrap()];
    let twice = combine(ServeArgs { volumes, ..ServeArgs::default() });
    assert_eq!(twice, "two volumes are called disk1: give each a name of its own");
    let many = combine(ServeArgs {
        volumes: (0..255).map(|number| format!("v{number}=null:1G").parse().unwrap()).collect(),
        ..ServeArgs::default()
    });
    assert!(many.starts_with("257 volumes are too many"), "{many}");
    let wires = vec!["hs-eth:eth0".parse().unwrap()];
    assert!(combine(ServeArgs { wires, ..ServeArgs::default() }).contains("hs-eth:eth0 is given twice"));
    let shards = std::num::NonZeroU16::new(2000);
    assert!(combine(ServeArgs { shards, ..ServeArgs::default() }).contains("2000 shards are too many"));
}

#[test]
fn a_password_is_the_first_line_of_a_file_that_only_its_owner_reads() {
    let path = std::env::temp_dir().join(format!("sanwire-password-{}", std::process::id()));
    let with = |content: &str, mode: u32| {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let result = read_password(&path).map(|password| String::from_utf8(password.as_bytes().to_vec()).unwrap());
        result.map_err(|error| error.to_string())
    };
    assert_eq!(with("secret word\r\nmore", 0o600).as_deref(), Ok("secret word"));
    assert_eq!(with("secret", 0o400).as_deref(), Ok("secret"));
    let readable = with("secret\n", 0o640).unwrap_err();
    assert!(readable.contains("(mode 640): chmod 600") && !readable.contains("secret"), "{readable}");
    assert!(with("\nsecret\n", 0o600).unwrap_err().contains("is empty"));
    assert!(with(&"x".repeat(1025), 0o600).unwrap_err().contains("too long"));
    fs::remove_file(&path).unwrap();
    assert!(read_password(&path).unwrap_err().to_string().contains("cannot read the password file"));
}
