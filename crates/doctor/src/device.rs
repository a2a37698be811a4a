//! `doctor qat`: the state of QuickAssist devices, and changing it: by /sys for the kernel's own driver, by adf_ctl else.

use crate::{
    Host,
    change::Step,
    facts::{Qat, Seen, devices},
};
use serde_json::{Value, json};
use std::fmt::Write;

/// What is asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Show the state only.
    Status,
    /// Bring the device up.
    Up,
    /// Stop the device.
    Down,
    /// Stop the device, then bring it up.
    Restart,
    /// Reset the function on the bus.
    Reset,
}

impl Action {
    /// The action for a word, as typed.
    pub fn parse(word: &str) -> Option<Action> {
        Some(match word {
            "status" => Action::Status,
            "up" => Action::Up,
            "down" => Action::Down,
            "restart" => Action::Restart,
            "reset" => Action::Reset,
            _ => return None,
        })
    }
}

/// How an action is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// By writes to /sys.
    Write(Vec<Step>),
    /// By programs.
    Run(Vec<String>),
}

/// The devices of a host.
#[derive(Debug)]
pub struct Devices<'a> {
    host: &'a Host,
    list: Vec<Qat>,
    seen: Seen,
    /// Number, address and state of each device, as adf_ctl reports them.
    adf: Vec<(String, String, String)>,
}

impl<'a> Devices<'a> {
    /// Looks for the devices of a host.
    pub fn of(host: &'a Host) -> Devices<'a> {
        let (list, seen) = devices(host);
        let adf = if list.iter().any(|device| device.state.is_none()) { host.command("adf_ctl status") } else { None };
        // qat_dev0 - type: c6xx, inst_id: 0, node_id: 0, bsf: 0000:3d:00.0, #accel: 5 #engines: 10 state: up
        let table = adf.unwrap_or_default();
        let adf = table.lines().filter_map(|line| {
            let name = line.trim().split(' ').next()?.to_owned();
            let address = line.split("bsf: ").nth(1)?.split(',').next()?.trim().to_owned();
            let state = line.split("state: ").nth(1)?.trim().to_owned();
            Some((name, address, state))
        });
        Devices { host, list, seen, adf: adf.collect() }
    }

    /// All devices.
    pub fn list(&self) -> &[Qat] {
        &self.list
    }

    /// The physical device that `name` stands for: its address, with or without the domain, its number in this list, or `qat_dev0`;
    /// without a name, the only device there is.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn find(&self, name: Option<&str>) -> Result<&Qat, String> {
        let nothing = match self.seen {
            Seen::Nowhere => "neither /sys/bus/pci nor /proc/bus/pci can be read here: devices are unknown",
            _ => "there is no QuickAssist device",
        };
        let Some(first) = self.list.first() else { return Err(nothing.into()) };
        let Some(name) = name else {
            return if self.list.len() == 1 {
                Ok(first)
            } else {
                Err(format!("there are {} devices: say which", self.list.len()))
            };
        };
        let is = |(at, device): &(usize, &Qat)| {
            device.address == name
                || device.address.strip_prefix("0000:") == Some(name)
                || name.parse() == Ok(*at)
                || self.adf.iter().any(|(own, address, _)| own == name && *address == device.address)
        };
        let found = self.list.iter().enumerate().find(is);
        let addresses = || self.list.iter().map(|d| d.address.as_str()).collect::<Vec<_>>().join(", ");
        found.map(|(_, device)| device).ok_or_else(|| format!("there is no device '{name}'; there are {}", addresses()))
    }

    /// Plans how to carry out an action.
    ///
    /// # Errors
    /// A sentence: why it cannot be done.
    pub fn plan(&self, action: Action, name: Option<&str>) -> Result<How, String> {
        let device = self.find(name)?;
        if device.is_virtual {
            return Err(format!(
                "{} is a virtual function: its state is that of the device on the host",
                device.address
            ));
        }
        let at = format!("/sys/bus/pci/devices/{}", device.address);
        let write = |file: &str, text: &str| Step { path: format!("{at}/{file}"), text: text.into(), is_value: true };
        if action == Action::Reset && self.host.exists(&format!("{at}/reset")) {
            return Ok(How::Write(vec![write("reset", "1")]));
        }
        if device.state.is_some() && action != Action::Reset {
            return Ok(How::Write(match action {
                Action::Up => vec![write("qat/state", "up")],
                Action::Down => vec![write("qat/state", "down")],
                _ => vec![write("qat/state", "down"), write("qat/state", "up")],
            }));
        }
        let Some((own, ..)) = self.adf.iter().find(|(_, address, _)| *address == device.address) else {
            let why = if device.driver.is_none() {
                format!("; no driver is bound: modprobe {}", device.module)
            } else {
                String::new()
            };
            return Err(format!("{}: neither {at}/qat/state is there nor does adf_ctl know it{why}", device.address));
        };
        let words: &[&str] = match action {
            Action::Up => &["up"],
            Action::Down => &["down"],
            Action::Reset => &["reset"],
            _ => &["down", "up"],
        };
        Ok(How::Run(words.iter().map(|word| format!("adf_ctl {own} {word}")).collect()))
    }

    fn state(&self, device: &Qat) -> String {
        let adf = self.adf.iter().find(|(_, address, _)| *address == device.address).map(|(.., state)| state.clone());
        device.state.clone().or(adf).unwrap_or_else(|| "unknown".into())
    }

    fn chosen(&self, name: Option<&str>) -> Result<Vec<&Qat>, String> {
        match name {
            Some(_) => Ok(vec![self.find(name)?]),
            None if self.list.is_empty() => self.find(None).map(|_| Vec::new()),
            None => Ok(self.list.iter().collect()),
        }
    }

    /// The state of the devices as a table.
    ///
    /// # Errors
    /// There is no such device.
    pub fn status(&self, name: Option<&str>) -> Result<String, String> {
        let mut out = format!(
            "{:<3}{:<14}{:<10}{:<12}{:<9}{:<16}{:<6}{}\n",
            "", "address", "kind", "driver", "state", "services", "node", "functions (vfio)"
        );
        for (at, device) in self.chosen(name)?.into_iter().enumerate() {
            // Writing to a String does not fail.
            let _ = writeln!(
                out,
                "{at:<3}{:<14}{:<10}{:<12}{:<9}{:<16}{:<6}{} of {} ({})",
                device.address,
                device.kind,
                device.driver.as_deref().unwrap_or("none"),
                self.state(device),
                device.services.as_deref().unwrap_or("unknown"),
                device.node.map_or("-".into(), |node| node.to_string()),
                device.functions.0,
                device.functions.1,
                device.vfio
            );
        }
        Ok(out)
    }

    /// The state of the devices as JSON, for scripts.
    ///
    /// # Errors
    /// There is no such device.
    pub fn json(&self, name: Option<&str>) -> Result<Value, String> {
        let device = |d: &Qat| {
            json!({
                "address": d.address, "kind": d.kind, "driver": d.driver, "state": self.state(d), "services": d.services,
                "asymmetric": d.has_asymmetric(), "node": d.node, "functions": d.functions.0, "functions_max": d.functions.1,
                "vfio": d.vfio, "is_virtual": d.is_virtual,
            })
        };
        Ok(json!({ "devices": self.chosen(name)?.into_iter().map(device).collect::<Vec<_>>() }))
    }
}
