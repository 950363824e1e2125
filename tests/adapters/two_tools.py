"""One task for agents of every framework: two tools, of which the second needs what the first has found."""

from dataclasses import dataclass, field

TASK = "How many degrees is it in Ada's room? First find out which room is hers, then read the thermometer of that room."
ROOM, DEGREES = "B19", 17


@dataclass
class House:
    """The tools, and what they were asked."""

    asked: list[tuple[str, str]] = field(default_factory=list)

    def find_room(self, person: str) -> str:
        """Find out which room is whose.

        Args:
            person: The first name of the person.
        """
        self.asked.append(("find_room", person))
        return f"The room of {person} is {ROOM}."

    def read_thermometer(self, room: str) -> str:
        """Read the thermometer of a room.

        Args:
            room: The number of the room, like A12.
        """
        self.asked.append(("read_thermometer", room))
        return f"It is {DEGREES} degrees in {room}." if ROOM in room else f"There is no thermometer in {room}."

    def is_done(self, answer: object) -> bool:
        """Whether an agent has found out, by both tools, and says so."""
        names = [name for name, _ in self.asked]
        has_read = any(name == "read_thermometer" and ROOM in text for name, text in self.asked)
        return "find_room" in names and has_read and str(DEGREES) in str(answer)
