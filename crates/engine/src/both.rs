//! The engine `hw+sw`: a device and lanes; each operation goes where it is predicted to be answered first.
//!
//! The device's time is predicted from its recent answers and the work it has (see [`hw::Pace`]); that of lanes from their
//! measured costs, the batches before it, and how much longer than predicted they have been taking on this worker. Where the
//! processor has no lanes that pay, the library takes their place.
//!
//! The device has a queue of its own: wrong, late and missing answers are redone, counted and punished by the bench there, and
//! lanes take everything meanwhile.

use crate::{
    Answer, Answers, Class, Counters, Describe, DeviceReport, Engine, Forecast, Next, Op, OpId, Queue, Settings,
    Ticket,
    hw::{self, Hw},
    sw::{Costs, Sw},
};
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

/// After this many consecutive operations that went elsewhere, the device gets one whatever is predicted: its time is only
/// known from operations that it was given.
const SCOUT: u32 = 256;

/// The engine of one worker.
pub struct Both {
    device: Queue,
    /// `None` where the library computes what the device does not.
    lanes: Option<Sw>,
    costs: Costs,
    /// Operations given to the device.
    given: Vec<(OpId, Ticket)>,
    /// Operations given to the lanes: when, and the predicted time.
    computed: Vec<(OpId, Instant, Duration)>,
    /// Ratio of the lanes' actual to their predicted time: other work of the worker comes between their turns.
    stretch: f64,
    device_next: Next,
    /// Operations since the device was last given one.
    elsewhere: u32,
}

/// The destination of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// The device, for this many operations.
    Device(usize),
    Lanes,
    Library,
}

impl Both {
    /// Combines a device's engine with lanes, where they pay.
    pub fn new(device: Hw, lanes: Option<Sw>, costs: Costs) -> Both {
        let settings = Settings { deadline: hw::DEADLINE, ..Settings::default() };
        Both {
            device: Queue::new(Box::new(device), settings),
            lanes,
            costs,
            given: Vec::new(),
            computed: Vec::new(),
            stretch: 1.0,
            device_next: Next::Idle,
            elsewhere: 0,
        }
    }

    fn route(&self, class: Class) -> Route {
        let lanes = self.lanes.as_ref().filter(|lanes| lanes.lanes(class) > 0);
        let elsewhere = match lanes {
            Some(lanes) => lanes.predict(class, 0).mul_f64(self.stretch),
            None => self.costs.of(class).native,
        };
        let device = self.device.engine();
        let sooner = |ahead: &usize| device.predict(class, *ahead) <= elsewhere;
        let room = if self.device.serves(class) { device.most(class) } else { 0 };
        match (0..room).take_while(sooner).count() {
            0 if room > 0 && self.elsewhere >= SCOUT => Route::Device(1),
            0 if lanes.is_some() => Route::Lanes,
            0 => Route::Library,
            count => Route::Device(count),
        }
    }

    fn learn(&mut self, answers: &Answers, now: Instant) {
        const SHARE: f64 = 1.0 / 16.0;
        const STRETCH_MAX: f64 = 16.0;
        for (id, _) in answers {
            let Some(place) = self.computed.iter().position(|(other, ..)| other == id) else { continue };
            let (_, since, predicted) = self.computed.swap_remove(place);
            let took = now.saturating_duration_since(since).div_duration_f64(predicted.max(Duration::from_micros(1)));
            self.stretch += (took.clamp(1.0, STRETCH_MAX) - self.stretch) * SHARE;
        }
    }
}

impl Engine for Both {
    fn offered(&mut self, _: Class) {
        self.elsewhere = self.elsewhere.saturating_add(1);
    }

    fn suspect(&mut self) {
        self.device.suspect();
    }

    fn at_hand(&mut self, op: &Op) -> Option<Answer> {
        self.lanes.as_mut()?.at_hand(op)
    }

    fn start(&mut self, batch: &mut Vec<(OpId, Rc<Op>)>, now: Instant) {
        let Some(class) = batch.first().map(|(_, op)| op.class()) else { return };
        if let Route::Device(count) = self.route(class) {
            let mut left = count;
            batch.retain(|(id, op)| {
                let goes = left > 0 && self.device.engine().serves(op);
                if goes {
                    left -= 1;
                    self.elsewhere = 0;
                    self.given.push((*id, self.device.submit_shared(op.clone(), 0, now)));
                }
                !goes
            });
            self.device_next = self.device.turn(now, false);
        }
        // Lanes take what is left, also what the device cannot use, such as keys of another form.
        let Some(lanes) = self.lanes.as_mut().filter(|lanes| lanes.lanes(class) > 0 && !lanes.is_busy(class)) else {
            return;
        };
        let (mut taken, left): (Vec<_>, Vec<_>) = batch.drain(..).partition(|(_, op)| lanes.serves(op));
        *batch = left;
        let predicted = lanes.predict(class, 0);
        self.computed.extend(taken.iter().map(|(id, _)| (*id, now, predicted)));
        lanes.start(&mut taken, now);
        batch.append(&mut taken);
    }

    fn run(&mut self, now: Instant, spent: Duration, answers: &mut Answers) {
        self.device_next = self.device.turn(now, false);
        self.given.retain(|(id, ticket)| {
            let ready = ticket.is_ready();
            if ready {
                answers.push((*id, ticket.take()));
            }
            !ready
        });
        if let Some(lanes) = &mut self.lanes {
            let mut computed = Vec::new();
            lanes.run(now, spent, &mut computed);
            self.learn(&computed, now);
            answers.append(&mut computed);
        }
    }

    fn next(&self, now: Instant) -> Next {
        let lanes = self.lanes.as_ref().map_or(Next::Idle, |lanes| lanes.next(now));
        lanes.sooner(self.device_next)
    }
}

impl Forecast for Both {
    fn lanes(&self, class: Class) -> usize {
        match (self.route(class), &self.lanes) {
            (Route::Device(_), _) => 1,
            (Route::Lanes, Some(lanes)) => lanes.lanes(class),
            _ => 0,
        }
    }

    fn most(&self, class: Class) -> usize {
        match (self.route(class), &self.lanes) {
            (Route::Device(count), _) => count,
            (Route::Lanes, Some(lanes)) => lanes.most(class),
            _ => 0,
        }
    }

    fn break_even(&self, class: Class) -> usize {
        match (self.route(class), &self.lanes) {
            (Route::Lanes, Some(lanes)) => lanes.break_even(class),
            _ => 1,
        }
    }

    fn native_time(&self, class: Class) -> Duration {
        self.costs.of(class).native
    }

    fn serves(&self, op: &Op) -> bool {
        let by_lanes = self.lanes.as_ref().is_some_and(|lanes| lanes.lanes(op.class()) > 0 && lanes.serves(op));
        match self.route(op.class()) {
            Route::Device(_) => self.device.engine().serves(op) || by_lanes,
            Route::Lanes => by_lanes,
            Route::Library => false,
        }
    }

    fn worth_alone(&self, class: Class, others: bool) -> bool {
        let native = self.costs.of(class).native;
        match (self.route(class), &self.lanes) {
            (Route::Device(_), _) => self.elsewhere >= SCOUT || self.device.engine().predict(class, 0) < native,
            (Route::Lanes, Some(lanes)) => lanes.worth_alone(class, others),
            _ => false,
        }
    }

    fn is_busy(&self, class: Class) -> bool {
        match (self.route(class), &self.lanes) {
            (Route::Lanes, Some(lanes)) => lanes.is_busy(class),
            _ => false,
        }
    }

    /// Device and lanes each check their own answers.
    fn checks(&self, _: Class) -> bool {
        true
    }
}

impl Describe for Both {
    fn name(&self) -> &'static str {
        "hw+sw"
    }

    fn device(&self) -> Option<DeviceReport> {
        self.device.engine().device()
    }

    fn within(&self) -> Option<&Counters> {
        Some(self.device.counters())
    }
}
