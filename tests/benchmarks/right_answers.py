"""A right answer to each turn of the benchmark's conversations, with the calls it takes."""

from callsmith.core.values import Call, Json


def call(name: str, /, **arguments: Json) -> Call:
    return Call(name, arguments)


Answered = tuple[str, *tuple[Call, ...]]  # the words, and the calls before them
RIGHT: dict[str, tuple[Answered, ...]] = {
    "bakery": (
        ("Hello! How can I help you?",),
        ("The bakery opens at 5:40.", call("opening_hours", shop="Bakery")),
        ("Done: two rye loaves.", call("order", shop="bakery", what="Two loaves of rye bread")),
        ("Three it is.", call("order", shop="the bakery", what="3 loaves")),
        ("You're welcome!",),
    ),
    "library": (
        ("Yes: The Salt Ladder.", call("search_books", query="Odalys Kern")),
        ("It stands on shelf R-208.",),
        ("William Shakespeare.",),
        ("It is now due on 19 November.", call("renew_loan", loan_id="L-55")),
    ),
    "home": (
        ("I can dim your lights and tell how warm a room is.",),
        ("The kitchen is at 70 percent.", call("set_light", room="Kitchen", brightness=70)),
        ("Now it is at 40 percent.", call("set_light", room="the kitchen", brightness=40)),
        (
            "17.3 degrees in the bedroom, 11.8 in the cellar.",
            call("room_temperature", room="bedroom"),
            call("room_temperature", room="cellar"),
        ),
    ),
    "parcels": (
        ("Fine, thank you. And you?",),
        ("It is in the sorting centre in Dornbach.", call("track_parcel", number="px4417")),
        ("On Friday, between 13:10 and 14:40.",),
        ("No, I can only follow parcels.",),
        ("Goodbye!",),
    ),
    "music": (
        ("This is Lanterns over Wick.", call("now_playing")),
        ("Mirelle Taub.",),
        ("It has four.",),
        ("Copper Rain is playing at 20.", call("play_song", title="Copper Rain"), call("set_volume", level=20)),
    ),
    "vegetable-garden": (
        ("Because of the chlorophyll in them.",),
        ("It is at 23 percent.", call("soil_moisture", bed="tomatoes")),
        ("It has been watered.", call("water_bed", bed="tomato bed", litres=6)),
        ("23 percent.",),
        ("Any time.",),
    ),
    "school": (
        ("Pottery, then Latin, then chemistry.", call("timetable", day="Tuesday")),
        ("Pottery, at 8:05.",),
        ("25 words for Latin, and task 7 on page 112.", call("homework", subject="Latin"), call("homework", subject="Chemistry")),
        ("That is beyond me: I know your timetable and homework only.",),
    ),
    "old-tongues": (
        ("Good morning to you, too.",),
        ("It is mialin.", call("translate", word="cat", language="Elvish")),
        ("Paris.",),
        ("Brakul.", call("translate", word="bread", language="Dwarvish")),
        ("I cannot phone anybody.",),
    ),
    "guest-house": (
        ("Rooms 307 and 112.", call("free_rooms", date="14 May")),
        ("84 a night.",),
        ("Booked.", call("book_room", room=307, guest="Ms Ilyin", date="05-14")),
        ("HX-9920.",),
    ),
    "recipes": (
        ("They take 95 minutes.", call("find_recipe", dish="walnut dumplings")),
        ("Happy birthday, dear aunt, and many more!",),
        ("Walnuts are on it.", call("add_to_shopping_list", item="walnuts")),
        ("Hazelnuts, then.", call("add_to_shopping_list", item="Hazelnuts")),
        ("I look up recipes and keep your shopping list.",),
    ),
    "butcher": (
        ("Good to see you as well!",),
        ("Four sausages are ordered.", call("order", shop="butcher", item="sausages", quantity=4)),
        ("Six, then.", call("order", shop="Butcher", item="sausage", quantity=6)),
        ("Until 4:35 pm.", call("opening_hours", shop="butcher")),
        ("My pleasure.",),
    ),
    "car": (
        ("31.5 litres.", call("fuel_level")),
        (
            "1.88 bar rear left and 2.41 front right.",
            call("tyre_pressure", wheel="rear left"),
            call("tyre_pressure", wheel="front_right"),
        ),
        ("It will be warm in 8 minutes.", call("set_cabin_temperature", degrees=22)),
        ("I cannot send mail from here.",),
    ),
    "calendar": (
        ("A piano tuner and a call with Yusra.", call("events_on", date="3 June")),
        ("At 10:45.",),
        ("It is in your calendar.", call("add_event", title="Haircut", date="4 June", time="16:00")),
        ("Moved to 16:30.", call("move_event", title="Haircut", new_time="16:30")),
        ("Glad to help.",),
    ),
    "museum": (
        ("With prices of tickets, and what is shown.",),
        ("Clocks of the Drowned Valley.", call("current_exhibition")),
        ("Until 23 February.",),
        ("Leonardo da Vinci.",),
    ),
    "clinic": (
        ("Good evening! What can I do for you?",),
        ("To penicillin.", call("pet_record", name="Biscuit")),
        ("On 6 April.",),
        ("On Thursday at 11:35.", call("book_visit", pet="Biscuit", day="Thursday")),
        ("Dr. Okonjo-Reyes.",),
    ),
    "station": (
        ("At 13:52.", call("next_train", destination="Velmont")),
        ("From platform 7b.",),
        ("I am afraid not.",),
        ("At 14:19.", call("next_train", destination="Harrow Quay")),
    ),
    "laundry": (
        ("At 100 degrees.",),
        ("For 19 more minutes.", call("machine_status")),
        ("It has been started.", call("start_program", program="cotton", temperature=60)),
        ("Started at 40 degrees.", call("start_program", program="Cotton", temperature=40)),
    ),
    "household-budget": (
        ("263.80 for travel, 4,318.66 saved.", call("balance", account="travel"), call("balance", account="savings")),
        ("150 are on their way.", call("transfer", from_account="savings", to_account="Travel account", amount=150)),
        ("That prices rise, and money buys less.",),
        ("Bye!",),
    ),
    "spare-parts": (
        ("46.", call("stock", part="Brake cables")),
        ("In D14.",),
        ("12 are ordered.", call("reorder", part="saddle", quantity=12)),
        ("15 are ordered.", call("reorder", part="saddles", quantity=15)),
        ("I know the stock and who supplies a part.",),
    ),
    "rowing-club": (
        ("Rain on the pane,\nand soon sun again.",),
        (
            "On Saturdays at 9:05; they pay 118.",
            call("training_times", group="seniors"),
            call("member_fee", group="Seniors"),
        ),
        ("The key is in box 58.", call("reserve_boat", boat="Squall", date="Sunday")),
        ("I only know the club.",),
    ),
}
