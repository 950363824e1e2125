"""The ten conversations of the benchmark that may be looked at while something is tuned."""

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


class Village(World):
    """The shops of a village."""

    def opening_hours(self, shop: str) -> str:
        """When a shop in our village is open.

        Args:
            shop: bakery, butcher or library.
        """
        return look_up({"bakery": "5:40 to 12:15", "butcher": "8:20 to 17:50", "library": "14 to 19"}, shop, "shop")

    @tool(side_effects=True)
    def order(self, shop: str, what: str) -> str:
        """Order something at a shop."""
        self.done.append(f"order {shop}: {what}")
        return f"{what}: ordered at the {shop}, number {6140 + len(self.done)}"


class Library(World):
    """The desk of a library."""

    def search_books(self, query: str) -> list[dict[str, object]]:
        """Search the catalogue by title or author."""
        book: dict[str, object] = {"title": "The Salt Ladder", "author": "Odalys Kern", "shelf": "R-208", "copies": 3}
        return [book] if any(word in plain(query) for word in ("salt", "ladder", "odalys", "kern")) else []

    @tool(side_effects=True)
    def renew_loan(self, loan_id: str) -> str:
        """Extend a loan by four weeks."""
        self.done.append(f"renew {loan_id}")
        return f"loan {loan_id} is now due on 19 November"


class Home(World):
    """Lamps and thermometers of a house."""

    @tool(side_effects=True)
    def set_light(self, room: str, brightness: int) -> str:
        """Dim the lights of a room.

        Args:
            room: Which room.
            brightness: 0 is off, 100 as bright as it gets.
        """
        self.done.append(f"light {plain(room)} {brightness}")
        return f"the light in the {room} is at {brightness} percent"

    def room_temperature(self, room: str) -> str:
        """Temperature measured in a room."""
        return f"{look_up({'bedroom': 17.3, 'cellar': 11.8, 'kitchen': 21.6}, room, 'room')} degrees"

    def list_rooms(self) -> list[str]:
        """All rooms of the house."""
        return ["bedroom", "cellar", "kitchen"]


class Parcels(World):
    """Parcels on their way."""

    def track_parcel(self, number: str) -> dict[str, str]:
        """Track a parcel by its number."""
        known = {"4417": {"place": "sorting centre Dornbach", "delivery": "Friday between 13:10 and 14:40"}}
        return look_up(known, number, "parcel")

    def shipping_price(self, kilograms: float, country: str) -> str:
        """What it costs to send a parcel to a country."""
        return f"{4.35 + 2.1 * kilograms:.2f} crowns to {country}"


class Music(World):
    """A music player."""

    def now_playing(self) -> dict[str, str]:
        """What is playing right now."""
        return {"song": "Lanterns over Wick", "artist": "Mirelle Taub", "album": "Low Tide Letters"}

    @tool(side_effects=True)
    def play_song(self, title: str) -> str:
        """Play a song."""
        self.done.append(f"play {title}")
        return f"playing {title}"

    @tool(side_effects=True)
    def set_volume(self, level: int) -> str:
        """Set the volume, from 0 to 100."""
        self.done.append(f"volume {level}")
        return f"volume {level}"

    def playlists(self) -> list[str]:
        """The names of my playlists."""
        return ["Harbour mornings", "Slow trams"]

    def lyrics(self, title: str) -> str:
        """Lyrics of a song."""
        return f"nobody has written down {title} yet"


class Garden(World):
    """The beds of a garden."""

    def soil_moisture(self, bed: str) -> str:
        """How moist the soil of a bed is, in percent."""
        return f"{look_up({'tomato': 23, 'carrot': 57, 'herb': 41}, bed, 'bed')} percent"

    @tool(side_effects=True)
    def water_bed(self, bed: str, litres: float) -> str:
        """Water a bed."""
        self.done.append(f"water {bed}: {litres:g}")
        return f"{litres:g} litres given"


class School(World):
    """A pupil's week."""

    def timetable(self, day: str) -> list[str]:
        """My lessons on a day of the week."""
        known = {"tuesday": ["8:05 pottery", "9:00 Latin", "10:15 chemistry"], "friday": ["8:05 fencing", "9:00 choir"]}
        return look_up(known, day, "day")

    def homework(self, subject: str) -> str:
        """Homework that is due in a subject."""
        known = {"chemistry": "page 112, task 7", "latin": "learn 25 words of chapter 9"}
        return look_up(known, subject, "subject")


class GuestHouse(World):
    """The rooms of a guest house."""

    def free_rooms(self, date: str) -> list[dict[str, object]]:
        """Rooms that are free on a date."""
        return [{"room": 307, "beds": 2, "price": 84}, {"room": 112, "beds": 1, "price": 59}]

    @tool(side_effects=True)
    def book_room(self, room: int, guest: str, date: str) -> dict[str, str]:
        """Book a room for a guest."""
        self.done.append(f"book {room} {guest} {date}")
        return {"booking": "HX-9920", "pay_by": "2 May"}

    def breakfast_hours(self) -> str:
        """When breakfast is served."""
        return "from 6:50 to 9:25"


class Recipes(World):
    """A cook's own recipes and a shopping list."""

    def find_recipe(self, dish: str) -> dict[str, object]:
        """Look up one of my recipes."""
        known = {"dumpling": {"dish": "walnut dumplings", "minutes": 95, "oven": "no", "serves": 7}}
        return look_up(known, dish, "recipe")

    @tool(side_effects=True)
    def add_to_shopping_list(self, item: str) -> str:
        """Put something on the shopping list."""
        self.done.append(f"list {item}")
        return f"{item} is on the list"

    def shopping_list(self) -> list[str]:
        """What is on the shopping list."""
        return ["rice vinegar", "turnips"]


TUNING = (
    Talk(
        "bakery",
        Village,
        "opening_hours order",
        (
            chats("Hello!"),
            asks("When does the bakery open?", r"5[:.]40", runs="opening_hours .*bakery"),
            orders(
                "Order two loaves of rye bread there, please.", does=r"order .*bakery: (?=.*\b(2|two)\b)(?=.*(loa|rye|bread))"
            ),
            corrects("No, three loaves.", does=r"order .*bakery: (?=.*\b(3|three)\b)(?=.*(loa|rye|bread))"),
            chats("Thanks!"),
        ),
    ),
    Talk(
        "library",
        Library,
        "search_books renew_loan",
        (
            asks("Do you have anything by Odalys Kern?", "salt ladder", runs="search_books .*kern"),
            recalls("On which shelf is it?", r"R-?\s?208"),
            knows("By the way, who wrote Hamlet?", "shakespeare"),
            orders("Please renew my loan L-55.", r"19|nov|renew|extend", does=r"renew .*L-?55"),
        ),
    ),
    Talk(
        "home",
        Home,
        "set_light room_temperature list_rooms",
        (
            offers("What can you do?", "light|lamp|dim|bright|temperature|room"),
            orders("Dim the kitchen light to 70 percent.", does="light kitchen.* 70"),
            corrects("Sorry, I meant 40.", does="light kitchen.* 40"),
            both(
                "How warm is it in the bedroom and in the cellar?",
                r"17[.,]3",
                r"11[.,]8",
                runs=("room_temperature .*bedroom", "room_temperature .*cellar"),
            ),
        ),
    ),
    Talk(
        "parcels",
        Parcels,
        "track_parcel shipping_price",
        (
            chats("Hi there, how are you?"),
            asks("Where is my parcel PX-4417?", "dornbach", runs="track_parcel .*4417"),
            recalls("And when will it be delivered?", r"friday|13[:.]10|1[:.]10"),
            cannot(
                "Could you bake a cake for my sister?", r"\bI(['’]ve| have)? (just )?baked|cake is (ready|done|baked|in the oven)"
            ),
            chats("Okay. Thank you, goodbye!"),
        ),
    ),
    Talk(
        "music",
        Music,
        "now_playing play_song set_volume playlists lyrics",
        (
            asks("Which song is this?", "lanterns over wick", runs="now_playing"),
            recalls("Who is the artist?", "mirelle taub|taub"),
            knows("How many strings does a violin have?", r"\b(4|four)\b"),
            both("Play Copper Rain and set the volume to 20.", does=("play .*copper rain", r"volume 20\b")),
        ),
    ),
    Talk(
        "vegetable-garden",
        Garden,
        "soil_moisture water_bed",
        (
            knows("Why are leaves green?", "chlorophyll"),
            asks("How moist is the soil of the tomato bed?", r"\b23\b", runs="soil_moisture .*tomato"),
            orders("Then give it 6 litres of water.", does=r"water .*tomato.*: 6$"),
            recalls("What was the moisture of the tomato bed before that?", r"\b23\b"),
            chats("Great, thanks a lot."),
        ),
    ),
    Talk(
        "school",
        School,
        "timetable homework",
        (
            asks("Which lessons do I have on Tuesday?", "pottery", "latin", "chemistry", runs="timetable .*tuesday"),
            recalls("What is the first of them?", "pottery"),
            both(
                "What is the homework in Latin, and what is it in chemistry?",
                "25|chapter 9",
                r"112|task 7",
                runs=("homework .*latin", "homework .*chemistry"),
            ),
            cannot(
                "Order me a pizza, please.", r"(I(['’]ve| have)? (just )?ordered|pizza (has been|was|is) (ordered|on its way))"
            ),
        ),
    ),
    Talk(
        "old-tongues",
        World,
        "translate",
        (
            chats("Good morning!"),
            asks("How do you say cat in Elvish?", "mialin", runs="translate .*cat.*elvish|translate .*elvish.*cat"),
            knows("What is the capital of France?", "paris"),
            asks("And what is bread in Dwarvish?", "brakul", runs="translate .*(bread.*dwarvish|dwarvish.*bread)"),
            cannot(
                "Now call my dentist, please.",
                r"\b(I am|I['’]m) (now )?calling|I(['’]ve| have) called|dentist (has been|was) called",
            ),
        ),
    ),
    Talk(
        "guest-house",
        GuestHouse,
        "free_rooms book_room breakfast_hours",
        (
            asks("Which rooms are free on 14 May?", "307", "112", runs="free_rooms .*(14|may)"),
            recalls("How much is the one with two beds?", r"\b84\b"),
            orders(
                "Book room 307 for Ms Ilyin for that night.", r"307|HX-?9920|booked|booking", does="book 307 .*ilyin.*(14|may)"
            ),
            recalls("What is the booking number?", r"HX-?9920"),
        ),
    ),
    Talk(
        "recipes",
        Recipes,
        "find_recipe add_to_shopping_list shopping_list",
        (
            asks("How long do my walnut dumplings take?", r"\b95\b", runs="find_recipe .*dumpling"),
            knows("Write one line for a birthday card for my aunt.", "birthday|happy|year|wish"),
            orders("Put walnuts on the shopping list.", does="list .*walnut"),
            corrects("No, hazelnuts instead.", does="list .*hazelnut"),
            offers("What else can you help me with here?", "recipe|shopping|list|dish"),
        ),
    ),
)
