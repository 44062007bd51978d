"""Conversion of a publisher's file into the one whose checksum is known."""

import io
import zipfile

ELEC2_HEADER = "date,day,period,nswprice,nswdemand,vicprice,vicdemand,transfer,class"
LARGEST_MEMBER = 1 << 24


def river_elec2(archive: bytes) -> bytes:
    """Return `electricity.csv` of River's zip with its numbers written as in our `elec2.csv`.

    The member is read into memory; nothing is unpacked to disk.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as file:
            member = file.getinfo("electricity.csv")
            if member.file_size > LARGEST_MEMBER:
                raise ValueError(f"electricity.csv has {member.file_size} bytes, far too many.")
            lines = file.read(member).decode("ascii").splitlines()
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"it is no zip archive with electricity.csv in it ({error}).") from error
    if not lines or lines[0] != ELEC2_HEADER:
        raise ValueError(f"the first line of electricity.csv must be {ELEC2_HEADER}.")
    rows = [ELEC2_HEADER]
    for number, line in enumerate(lines[1:], 2):
        date, day, *values, label = line.split(",")
        if label not in ("UP", "DOWN"):
            raise ValueError(f"line {number} must end in UP or DOWN, but ends in {label!r}.")
        numbers = [repr(float(value)) for value in values]
        rows.append(",".join([repr(float(date)), day, *numbers, "1" if label == "UP" else "0"]))
    return ("\n".join(rows) + "\n").encode("ascii")
