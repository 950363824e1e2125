"""The ten conversations of the benchmark that are only reported: nothing is to be tuned on them."""

from benchmarks.conversation_turns import (
    Talk,
    asks,
    both,
    cannot,
    chats,
    corrects,
    knows,
    look_up,
    offers,
    orders,
    plain,
    recalls,
)
from benchmarks.journeys import World
from callsmith import tool


class Butcher(World):
    """A butcher who takes orders, beside other shops."""

    def opening_hours(self, shop: str) -> str:
        """When a shop in our village is open.

        Args:
            shop: butcher, fishmonger or florist.
        """
        return look_up({"butcher": "7:25 to 16:35", "fishmonger": "9 to 11:50", "florist": "10 to 18"}, shop, "shop")

    def price_list(self, shop: str) -> dict[str, str]:
        """What things cost at a shop."""
        return look_up({"butcher": {"sausage": "1.85 each", "ham": "22.40 a kilo"}}, shop, "shop")

    @tool(side_effects=True)
    def order(self, shop: str, item: str, quantity: int = 1) -> str:
        """Order something at a shop."""
        self.done.append(f"order {shop}: {quantity} {item}")
        return f"ordered, ready after {12 + len(self.done)}:15"


class Car(World):
    """A car that can be asked how it is."""

    def fuel_level(self) -> str:
        """How much fuel is left in the tank."""
        return "31.5 litres"

    def tyre_pressure(self, wheel: str) -> str:
        """Pressure of a tyre, in bar.

        Args:
            wheel: front left, front right, rear left or rear right.
        """
        known = {"front left": 2.37, "front right": 2.41, "rear left": 1.88, "rear right": 2.44}
        return f"{look_up(known, wheel, 'wheel')} bar"

    @tool(side_effects=True)
    def set_cabin_temperature(self, degrees: float) -> str:
        """Heat or cool the car."""
        self.done.append(f"cabin {degrees:g}")
        return f"the cabin will be at {degrees:g} degrees in 8 minutes"

    @tool(side_effects=True)
    def lock_doors(self) -> str:
        """Lock all doors."""
        self.done.append("lock")
        return "all doors are locked"

    def mileage(self) -> str:
        """How far the car has been driven."""
        return "84,206 kilometres"


class Calendar(World):
    """Somebody's calendar."""

    def events_on(self, date: str) -> list[dict[str, str]]:
        """My appointments on a day."""
        return [{"time": "10:45", "title": "piano tuner"}, {"time": "17:20", "title": "call with Yusra"}]

    @tool(side_effects=True)
    def add_event(self, title: str, date: str, time: str) -> str:
        """Put an appointment into the calendar."""
        self.done.append(f"add {title} on {date} at {time}")
        return "saved"

    @tool(side_effects=True)
    def move_event(self, title: str, new_time: str) -> str:
        """Move an appointment to another time of the same day."""
        self.done.append(f"move {title} at {new_time}")
        return f"moved to {new_time}"


class Museum(World):
    """What a museum tells its visitors."""

    def ticket_price(self, visitor: str) -> str:
        """Price of a ticket.

        Args:
            visitor: adult, child or student.
        """
        return look_up({"adult": "13.70", "child": "4.15", "student": "8.90"}, visitor, "kind of visitor")

    def current_exhibition(self) -> dict[str, str]:
        """The special exhibition that is on now."""
        return {"title": "Clocks of the Drowned Valley", "until": "23 February", "floor": "third floor"}


class Clinic(World):
    """A vet's records."""

    def pet_record(self, name: str) -> dict[str, object]:
        """What we know about a pet."""
        known = {"biscuit": {"animal": "ferret", "weight_grams": 1140, "last_vaccination": "6 April", "allergy": "penicillin"}}
        return look_up(known, name, "pet")

    @tool(side_effects=True)
    def book_visit(self, pet: str, day: str) -> dict[str, str]:
        """Make an appointment with the vet."""
        self.done.append(f"visit {pet} {day}")
        return {"time": "11:35", "doctor": "Dr. Okonjo-Reyes"}

    def clinic_phone(self) -> str:
        """The phone number of the clinic."""
        return "0417 552 809"


class Station(World):
    """The departure board of a station."""

    def next_train(self, destination: str) -> dict[str, str]:
        """The next train to a place."""
        known = {
            "velmont": {"train": "RX 618", "departs": "13:52", "platform": "7b"},
            "harrow quay": {"train": "IC 27", "departs": "14:19", "platform": "2"},
        }
        return look_up(known, destination, "destination")


class Laundry(World):
    """A washing machine."""

    def machine_status(self) -> dict[str, object]:
        """What the washing machine is doing."""
        return {"state": "spinning", "minutes_left": 19, "program": "wool"}

    @tool(side_effects=True)
    def start_program(self, program: str, temperature: int) -> str:
        """Start a washing program at a temperature in degrees Celsius."""
        self.done.append(f"wash {program} {temperature}")
        return f"{program} at {temperature} degrees, done in {107 + len(self.done)} minutes"


class Budget(World):
    """Money of a household."""

    def balance(self, account: str) -> str:
        """How much is on an account.

        Args:
            account: savings, household or travel.
        """
        known = {"savings": "4,318.66", "household": "927.05", "travel": "263.80"}
        return look_up(known, account, "account")

    @tool(side_effects=True)
    def transfer(self, from_account: str, to_account: str, amount: float) -> str:
        """Move money from one of our accounts to another."""
        self.done.append(f"transfer {plain(from_account)} to {plain(to_account)}: {amount:g}")
        return "done, reference TF-30817"


class SpareParts(World):
    """The store of a bicycle workshop."""

    def stock(self, part: str) -> dict[str, object]:
        """How many of a part we have, and where."""
        known = {
            "brake cable": {"pieces": 46, "drawer": "D14"},
            "saddle": {"pieces": 3, "drawer": "K2"},
            "chain": {"pieces": 17, "drawer": "A9"},
        }
        return look_up(known, part, "part")

    @tool(side_effects=True)
    def reorder(self, part: str, quantity: int) -> str:
        """Order more of a part from the supplier."""
        self.done.append(f"reorder {part}: {quantity}")
        return f"order accepted, delivery in {8 + len(self.done)} days"

    def supplier(self, part: str) -> str:
        """Who supplies a part."""
        return "Brontë & Vask"


class RowingClub(World):
    """What the members of a rowing club ask."""

    def training_times(self, group: str) -> str:
        """When a group trains.

        Args:
            group: juniors, adults or seniors.
        """
        known = {"junior": "Mondays at 16:10", "adult": "Wednesdays at 19:40", "senior": "Saturdays at 9:05"}
        return look_up(known, group, "group")

    @tool(side_effects=True)
    def reserve_boat(self, boat: str, date: str) -> str:
        """Reserve a boat for a day."""
        self.done.append(f"boat {boat} {date}")
        return f"{boat} is reserved, the key is in box 58"

    def boats(self) -> list[str]:
        """The boats of the club."""
        return ["Heron", "Old Marguerite", "Squall"]

    def member_fee(self, group: str) -> str:
        """What members of a group pay a year."""
        return look_up({"junior": "64", "adult": "172", "senior": "118"}, group, "group")


HELD_OUT = (
    Talk(
        "butcher",
        Butcher,
        "opening_hours price_list order",
        (
            chats("Hey, good to see you!"),
            orders("Order four sausages at the butcher, please.", does=r"order .*butcher: (?=.*\b(4|four)\b).*sausage"),
            corrects("No, make it six sausages.", does=r"order .*butcher: (?=.*\b(6|six)\b).*sausage"),
            asks("Until when is the butcher open?", r"16[:.]35|4[:.]35", runs="opening_hours .*butcher"),
            chats("Thank you very much."),
        ),
    ),
    Talk(
        "car",
        Car,
        "fuel_level tyre_pressure set_cabin_temperature lock_doors mileage",
        (
            asks("How much fuel do I have left?", r"31[.,]5", runs="fuel_level"),
            both(
                "What is the pressure of the rear left tyre and of the front right one?",
                r"1[.,]88",
                r"2[.,]41",
                runs=("tyre_pressure .*rear.left", "tyre_pressure .*front.right"),
            ),
            orders("Warm the car up to 22 degrees.", does=r"cabin 22\b"),
            cannot("Write an email to my boss and send it.", r"(I(['’]ve| have)? (just )?sent|email (has been|was|is) sent)"),
        ),
    ),
    Talk(
        "calendar",
        Calendar,
        "events_on add_event move_event",
        (
            asks("What do I have on 3 June?", "piano", "yusra", runs="events_on .*(june|06|6)"),
            recalls("At what time does the piano tuner come?", r"10[:.]45"),
            orders("Add a haircut on 4 June at 16:00.", does=r"add .*hair.* on .*(june|6).* at (16|4)"),
            corrects("No, at 16:30.", does=r"(add|move) .*hair.* at (16[:.]?30|4[:.]30)"),
            chats("Perfect, thanks!"),
        ),
    ),
    Talk(
        "museum",
        Museum,
        "ticket_price current_exhibition",
        (
            offers("What can you help me with?", "ticket|price|exhibition|museum"),
            asks("Which special exhibition is on?", "drowned valley", runs="current_exhibition"),
            recalls("Until when can I see it?", r"\b23\b|february"),
            knows("Who painted the Mona Lisa?", "leonardo|da vinci"),
        ),
    ),
    Talk(
        "clinic",
        Clinic,
        "pet_record book_visit clinic_phone",
        (
            chats("Good evening."),
            asks("What is Biscuit allergic to?", "penicillin", runs="pet_record .*biscuit"),
            recalls("And when was the last vaccination?", r"april|\b6\b"),
            orders("Make an appointment for Biscuit on Thursday.", does="visit .*biscuit.* thursday"),
            recalls("Which doctor will see us?", "okonjo|reyes"),
        ),
    ),
    Talk(
        "station",
        Station,
        "next_train",
        (
            asks("When does the next train to Velmont leave?", r"13[:.]52|1[:.]52", runs="next_train .*velmont"),
            recalls("From which platform?", r"\b7\s?b"),
            cannot(
                "Can you walk my dog this afternoon?",
                r"\b(I['’]ll|I will|I can|sure,? I) (gladly |happily )?walk|dog (has been|was) walked",
            ),
            asks("And the next one to Harrow Quay?", r"14[:.]19|2[:.]19", runs="next_train .*harrow"),
        ),
    ),
    Talk(
        "laundry",
        Laundry,
        "machine_status start_program",
        (
            knows("At how many degrees Celsius does water boil at sea level?", r"\b100\b"),
            asks("How long will the washing machine still run?", r"\b19\b", runs="machine_status"),
            orders("When it is done, it needs another wash: start cotton at 60 degrees.", does=r"wash .*cotton.* 60\b"),
            corrects("Oh no, at 40 degrees, please.", does=r"wash .*cotton.* 40\b"),
        ),
    ),
    Talk(
        "household-budget",
        Budget,
        "balance transfer",
        (
            both(
                "How much is on the travel account and how much on savings?",
                r"263[.,]80?",
                r"4[,. ]?318[.,]66",
                runs=("balance .*travel", "balance .*savings"),
            ),
            orders(
                "Transfer 150 from savings to the travel account.",
                r"150|TF-?30817|transfer|done",
                does="savings.* to travel.*: 150$",
            ),
            knows("What does the word inflation mean?", "price|purchasing|money"),
            chats("Thanks, that was all. Bye!"),
        ),
    ),
    Talk(
        "spare-parts",
        SpareParts,
        "stock reorder supplier",
        (
            asks("How many brake cables do we have?", r"\b46\b", runs="stock .*brake"),
            recalls("Which drawer are they in?", r"\bD\s?-?14\b"),
            orders("Reorder 12 saddles.", does="reorder .*saddle.*: 12$"),
            corrects("I'm sorry, that should have been 15 saddles.", does="reorder .*saddle.*: 15$"),
            offers("What can you do for me besides?", "stock|part|order|supplier"),
        ),
    ),
    Talk(
        "rowing-club",
        RowingClub,
        "training_times reserve_boat boats member_fee",
        (
            knows("Write a short two-line poem about rain.", "rain|drop|sky|cloud"),
            both(
                "When do the seniors train, and what do they pay a year?",
                r"9[:.]05|saturday",
                r"\b118\b",
                runs=("training_times .*senior", "member_fee .*senior"),
            ),
            orders("Reserve the Squall for Sunday.", does="boat .*squall.* sunday"),
            cannot(
                "Please book me a flight to Lisbon.", r"(I(['’]ve| have)? (just )?booked|flight (has been|was|is) (now )?booked)"
            ),
        ),
    ),
)
