//! Metrics of a QuickAssist device in the Prometheus format.

use penstock_engine::{
    Class, DeviceReport,
    hw::{CompressionReport, Health, Summary},
};
use std::fmt::Write as _;

type Value = fn(&Summary) -> u64;

#[rustfmt::skip] // One line a metric reads as the table that it is.
const BY_INSTANCE: [(&str, Value, &str); 3] = [
    ("instance_up", |i| u64::from(i.health == Health::Up), "1 while the instance takes requests"),
    ("instance_requests", |i| i.depth.into(), "Requests that the instance has not answered, of all workers"),
    ("instance_workers", |i| i.workers.into(), "Workers that share the instance"),
];

/// Adds the device's metrics.
pub fn render(out: &mut String, report: &DeviceReport) {
    let counters = &report.counters;
    head(out, "info", "gauge", "The device that helps with handshakes, by the library it is reached through");
    let part = report.instances.first().map_or("", |instance| instance.part.as_str());
    let _ = writeln!(out, "penstock_device_info{{library=\"{}\",part=\"{}\"}} 1", report.library, label(part));
    head(out, "operations_total", "counter", "Operations given to the device");
    for class in Class::ALL.into_iter().filter(|class| counters.given[*class as usize] > 0) {
        let given = counters.given[class as usize];
        let _ = writeln!(out, "penstock_device_operations_total{{class=\"{}\"}} {given}", class.name());
    }
    for (name, kind, value, help) in [
        ("requests", "gauge", counters.depth, "Requests in progress"),
        ("requests_max", "gauge", counters.depth_max, "Most requests that one worker has had in progress"),
        ("ring_full_total", "counter", counters.ring_full, "Requests that found the ring full, and waited"),
        ("suspected_total", "counter", counters.suspected, "Handshakes that failed as one with a wrong secret does"),
        ("benched_total", "counter", counters.benched, "Times a worker took the device out of service"),
        ("benched_workers", "gauge", counters.is_benched, "Workers for whom it is out of service now"),
        ("restarts_total", "counter", report.restarts.into(), "Resets that instances have come back from"),
        ("compression_instances", "gauge", report.compression as u64, "Instances for compression"),
    ] {
        whole(out, name, kind, value, help);
    }
    for (name, value, help) in BY_INSTANCE {
        head(out, name, "gauge", help);
        for instance in &report.instances {
            let node = instance.node.map_or(String::new(), |node| node.to_string());
            let (instance, value) = (label(&instance.name), value(instance));
            let _ = writeln!(out, "penstock_device_{name}{{instance=\"{instance}\",node=\"{node}\"}} {value}");
        }
    }
}

/// Adds the metrics of compression by the device.
pub fn render_compression(out: &mut String, report: &CompressionReport) {
    let c = &report.counters;
    let up = report.instances.iter().filter(|instance| instance.health == Health::Up).count() as u64;
    for (name, kind, value, help) in [
        ("instances_up", "gauge", up, "Instances for compression that take requests"),
        ("bytes_total", "counter", c.bytes_device, "Bytes of bodies that the device has compressed rightly"),
        (
            "software_bytes_total",
            "counter",
            c.bytes_software,
            "Bytes that it might have had, and software has compressed",
        ),
        ("pieces_total", "counter", c.pieces, "Pieces of bodies given to the device"),
        ("redone_total", "counter", c.wrong + c.late + c.failed, "Pieces that software compressed again"),
        ("wrong_total", "counter", c.wrong, "Pieces whose answer did not become what it was made of"),
        ("late_total", "counter", c.late, "Pieces without an answer in time"),
        ("failed_total", "counter", c.failed, "Pieces whose answer was an error"),
        ("full_total", "counter", c.full, "Pieces for which the device had no room"),
        ("benched_total", "counter", c.benched, "Times a worker took it out of service for compression"),
        ("requests", "gauge", c.depth, "Pieces in progress"),
    ] {
        whole(out, &format!("compression_{name}"), kind, value, help);
    }
}

/// A metric without labels.
fn whole(out: &mut String, name: &str, kind: &str, value: u64, help: &str) {
    head(out, name, kind, help);
    let _ = writeln!(out, "penstock_device_{name} {value}");
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP penstock_device_{name} {help}\n# TYPE penstock_device_{name} {kind}\n");
}

/// A name from the library as the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use penstock_engine::{DeviceCounters, hw::CompressionCounters};

    /// An instance that is up, with seven requests in progress.
    pub(crate) fn instance(name: &str) -> Summary {
        Summary {
            name: name.into(),
            part: "4xxx".into(),
            package: 0,
            node: Some(1),
            capabilities: Default::default(),
            health: Health::Up,
            workers: 2,
            depth: 7,
        }
    }

    #[test]
    fn a_device_is_shown_with_its_instances_and_the_classes_it_was_given() {
        let instance = instance("qat\"0");
        let lost = Summary { name: "qat1".into(), node: None, health: Health::Lost, ..instance.clone() };
        let mut counters = DeviceCounters { depth: 7, is_benched: 1, ..DeviceCounters::default() };
        counters.given[Class::Rsa2048 as usize] = 40;
        let instances = vec![instance, lost];
        let report = DeviceReport { counters, instances, restarts: 3, compression: 2, library: "libqat.so.4" };
        let mut page = String::new();
        render(&mut page, &report);
        for line in [
            "penstock_device_info{library=\"libqat.so.4\",part=\"4xxx\"} 1",
            "penstock_device_operations_total{class=\"rsa2048\"} 40",
            "penstock_device_requests 7",
            "penstock_device_benched_workers 1",
            "penstock_device_restarts_total 3",
            "penstock_device_instance_up{instance=\"qat\\\"0\",node=\"1\"} 1",
            "penstock_device_instance_up{instance=\"qat1\",node=\"\"} 0",
            "penstock_device_instance_requests{instance=\"qat1\",node=\"\"} 7",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(!page.contains("x25519"));
    }

    #[test]
    fn compression_is_shown_with_what_was_redone() {
        let mut counters = CompressionCounters { bytes_device: 65_536, bytes_software: 100, ..Default::default() };
        (counters.pieces, counters.wrong, counters.late, counters.failed) = (9, 1, 2, 3);
        let lost = Summary { health: Health::Lost, ..instance("dc1") };
        let mut page = String::new();
        render_compression(&mut page, &CompressionReport { counters, instances: vec![instance("dc0"), lost] });
        for line in [
            "penstock_device_compression_instances_up 1",
            "penstock_device_compression_bytes_total 65536",
            "penstock_device_compression_software_bytes_total 100",
            "penstock_device_compression_redone_total 6",
            "penstock_device_compression_wrong_total 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
    }
}
