//! `sanwire ctl`.

use sanwire_core::Size;
use sanwire_target::{Answer, Request, Status};

use crate::args::{CtlArgs, CtlCommand};
use crate::output;
use crate::{args, control};

/// Asks the server and prints its answer.
pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let request = request(&args.command)?;
    let socket = args.socket.clone().map_or_else(control::only_socket, Ok)?;
    let answer = control::ask(&socket, &request)?;
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&answer)?) } else { show(&answer) };
    Ok(output::print(&text)?)
}

fn request(command: &CtlCommand) -> anyhow::Result<Request> {
    Ok(match command {
        CtlCommand::Status => Request::Status,
        CtlCommand::Sessions => Request::Sessions,
        CtlCommand::AddVolume { volume, target } => {
            args::check_volume(volume)?;
            Request::AddVolume { volume: volume.clone(), target: target.clone() }
        }
        CtlCommand::RemoveVolume { name } => Request::RemoveVolume { name: name.clone() },
        CtlCommand::ResizeVolume { name, size } => {
            Request::ResizeVolume { name: name.clone(), size: size.0.to_string() }
        }
        CtlCommand::Reload => Request::Reload,
    })
}

fn show(answer: &Answer) -> String {
    match answer {
        Answer::Status(status) => show_status(status),
        Answer::Sessions(sessions) => {
            let rows: Vec<_> = sessions
                .iter()
                .map(|session| {
                    let port = format!("{},{}", session.initiator, session.isid);
                    [port, session.target.clone(), session.tsih.to_string(), session.shard.to_string()]
                })
                .collect();
            output::table(["INITIATOR", "TARGET", "TSIH", "SHARD"], &rows)
        }
        Answer::Changed(lines) if lines.is_empty() => "nothing differs\n".into(),
        Answer::Changed(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
    }
}

fn show_status(status: &Status) -> String {
    let volumes: Vec<_> = status
        .volumes
        .iter()
        .map(|volume| {
            let mode = if volume.read_only { "ro" } else { "rw" };
            [volume.lun.to_string(), volume.name.clone(), Size(volume.size_bytes).to_string(), mode.to_owned()]
        })
        .collect();
    let units = status.targets.iter().flat_map(|target| target.units.iter().map(|unit| (&target.name, unit)));
    let units: Vec<_> =
        units.map(|(target, (lun, volume))| [target.clone(), lun.to_string(), volume.clone()]).collect();
    let wires: String = status.wires.iter().map(|wire| format!("\n  on {wire}")).collect();
    format!(
        "{}{wires}\n\n{}\n{}",
        status.name,
        output::table(["LUN", "VOLUME", "SIZE", "MODE"], &volumes),
        output::table(["TARGET", "LUN", "VOLUME"], &units)
    )
}

#[cfg(test)]
mod tests {
    use sanwire_target::{TargetStatus, VolumeStatus};

    use super::*;

    #[test]
    fn a_status_is_two_tables() {
        let status = Status {
            name: "box".into(),
            wires: vec!["hs-ip:127.0.0.1:5674".into()],
            volumes: vec![VolumeStatus {
                name: "disk0".into(),
                lun: 0,
                size_bytes: 1 << 30,
                block_bytes: 512,
                read_only: false,
            }],
            targets: vec![TargetStatus { name: "iqn.x:disk0".into(), units: vec![(0, "disk0".into())] }],
        };
        let expected = "box\n  on hs-ip:127.0.0.1:5674\n\nLUN  VOLUME  SIZE   MODE\n0    disk0   1 GiB  rw\n\n\
                        TARGET       LUN  VOLUME\niqn.x:disk0  0    disk0\n";
        assert_eq!(show(&Answer::Status(status)), expected);
        assert_eq!(show(&Answer::Changed(Vec::new())), "nothing differs\n");
    }
}
