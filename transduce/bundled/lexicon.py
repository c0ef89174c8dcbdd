"""The words of the bundled corpus, German and English, and how they bend."""

from __future__ import annotations

from dataclasses import dataclass

# article noun / plural = english / plural : kinds        (weak nouns, marked *, add -n or -en outside the nominative)
_NOUNS = """
das bier / biere = beer / beers : drink
der kaffee / kaffees = coffee / coffees : drink
der tee / tees = tea / teas : drink
der saft / säfte = juice / juices : drink
das wasser / - = water / - : drink
die milch / - = milk / - : drink
das brot / brote = bread / - : food bakery
der kuchen / kuchen = cake / cakes : food bakery
die suppe / suppen = soup / soups : food meal
der salat / salate = salad / salads : food meal
der apfel / äpfel = apple / apples : food fruit
die banane / bananen = banana / bananas : food fruit
das ei / eier = egg / eggs : food meal
der fisch / fische = fish / - : food meal
der käse / - = cheese / - : food
die kartoffel / kartoffeln = potato / potatoes : food meal
das buch / bücher = book / books : text thing
die zeitung / zeitungen = newspaper / newspapers : text thing
der brief / briefe = letter / letters : text written
die karte / karten = card / cards : text written thing
die geschichte / geschichten = story / stories : text written
das lied / lieder = song / songs : heard
die musik / - = music / - : heard
das auto / autos = car / cars : thing machine
das fahrrad / fahrräder = bicycle / bicycles : thing machine
der computer / computer = computer / computers : thing machine
die uhr / uhren = watch / watches : thing machine
die lampe / lampen = lamp / lamps : thing machine
der tisch / tische = table / tables : thing
der stuhl / stühle = chair / chairs : thing
die tasche / taschen = bag / bags : thing
der schlüssel / schlüssel = key / keys : thing
das bild / bilder = picture / pictures : thing
die blume / blumen = flower / flowers : thing
das haus / häuser = house / houses : building thing
die wohnung / wohnungen = apartment / apartments : building room
das zimmer / zimmer = room / rooms : room building
die küche / küchen = kitchen / kitchens : room
das fenster / fenster = window / windows : opening
die tür / türen = door / doors : opening
das hemd / hemden = shirt / shirts : clothes thing
die jacke / jacken = jacket / jackets : clothes thing
der mantel / mäntel = coat / coats : clothes thing
der hut / hüte = hat / hats : clothes thing
der schuh / schuhe = shoe / shoes : clothes thing
der hund / hunde = dog / dogs : animal
die katze / katzen = cat / cats : animal
das pferd / pferde = horse / horses : animal
der vogel / vögel = bird / birds : animal
der mann / männer = man / men : person
die frau / frauen = woman / women : person
das kind / kinder = child / children : person young
*der junge / jungen = boy / boys : person young
das mädchen / mädchen = girl / girls : person young
der vater / väter = father / fathers : person family
die mutter / mütter = mother / mothers : person family
der bruder / brüder = brother / brothers : person family young
die schwester / schwestern = sister / sisters : person family young
der sohn / söhne = son / sons : person family young
die tochter / töchter = daughter / daughters : person family young
der freund / freunde = friend / friends : person family
*der nachbar / nachbarn = neighbour / neighbours : person family
*der kollege / kollegen = colleague / colleagues : person family
der lehrer / lehrer = teacher / teachers : person
der arzt / ärzte = doctor / doctors : person
*der student / studenten = student / students : person
die sprache / sprachen = language / languages : taught
das wort / wörter = word / words : taught
die frage / fragen = question / questions : asked
die antwort / antworten = answer / answers : asked
"""

# adjective = english : kinds of noun it goes with
_ADJECTIVES = """
kalt = cold : drink meal
heiß = hot : drink meal
gut = good : drink food text heard machine person taught asked
frisch = fresh : food
süß = sweet : bakery fruit
alt = old : thing building person animal clothes text
neu = new : thing building clothes machine text heard
klein = small : thing building room animal
groß = big : thing building room animal opening
schön = beautiful : thing building room clothes heard animal
teuer = expensive : thing building clothes machine
billig = cheap : thing clothes machine
rot = red : thing clothes fruit
blau = blue : thing clothes
grün = green : clothes fruit
schwarz = black : clothes animal machine
weiß = white : clothes animal opening
jung = young : person animal
nett = nice : person
klug = clever : person animal
schwer = difficult : taught asked text
wichtig = important : taught asked text
lang = long : text written heard
interessant = interesting : text asked heard person
"""

# infinitive / changed stem / participle = english / past / -ing : objects
# (+ perfect with sein; prefix| separable; ! a state: simple present in English; ? an event: only told in the past)
_TRANSITIVE = """
trinken / - / getrunken = drink / drank / drinking : drink
bestellen / - / bestellt = order / ordered / ordering : drink food
kaufen / - / gekauft = buy / bought / buying : drink food thing building clothes machine animal text
verkaufen / - / verkauft = sell / sold / selling : thing building machine animal bakery fruit
bezahlen / - / bezahlt = pay for / paid for / paying for : drink food thing clothes
essen / iss / gegessen = eat / ate / eating : food
kochen / - / gekocht = cook / cooked / cooking : meal
backen / - / gebacken = bake / baked / baking : bakery
lesen / lies / gelesen = read / read / reading : text
schreiben / - / geschrieben = write / wrote / writing : written
hören / - / gehört = listen to / listened to / listening to : heard
singen / - / gesungen = sing / sang / singing : heard
suchen / - / gesucht = look for / looked for / looking for : thing animal clothes person building
sehen / sieh / gesehen = !see / saw / seeing : thing animal person building
brauchen / - / gebraucht = !need / needed / needing : thing machine clothes room taught
kennen / - / gekannt = !know / knew / knowing : person heard
verstehen / - / verstanden = !understand / understood / understanding : taught asked person
lernen / - / gelernt = learn / learned / learning : taught
besuchen / - / besucht = visit / visited / visiting : person family
treffen / triff / getroffen = meet / met / meeting : person family
reparieren / - / repariert = repair / repaired / repairing : machine opening
waschen / wäsch / gewaschen = wash / washed / washing : clothes fruit
malen / - / gemalt = paint / painted / painting : animal building opening
tragen / träg / getragen = wear / wore / wearing : clothes
finden / - / gefunden = ?find / found / finding : thing text animal
verlieren / - / verloren = ?lose / lost / losing : thing clothes
vergessen / vergiss / vergessen = ?forget / forgot / forgetting : taught thing asked
an|rufen / - / angerufen = call / called / calling : person family
ab|holen / - / abgeholt = pick up / picked up / picking up : person family
ein|laden / läd / eingeladen = invite / invited / inviting : person family
auf|machen / - / aufgemacht = open / opened / opening : opening
zu|machen / - / zugemacht = close / closed / closing : opening
auf|räumen / - / aufgeräumt = tidy up / tidied up / tidying up : room
an|ziehen / - / angezogen = put on / put on / putting on : clothes
mit|bringen / - / mitgebracht = bring / brought / bringing : drink food bakery text
"""

# verbs with a person in the dative and a thing in the accusative
_GIVING = """
geben / gib / gegeben = give / gave / giving : thing text drink fruit
zeigen / - / gezeigt = show / showed / showing : thing text building animal
schenken / - / geschenkt = give / gave / giving : clothes animal
"""

# verbs without object; kinds say whether a place (where), a direction (whither) or neither goes with them
_INTRANSITIVE = """
schlafen / schläf / geschlafen = sleep / slept / sleeping : where
arbeiten / - / gearbeitet = work / worked / working : where
tanzen / - / getanzt = dance / danced / dancing : where
spielen / - / gespielt = play / played / playing : where
warten / - / gewartet = wait / waited / waiting : where
bleiben / - / +geblieben = stay / stayed / staying : where
wohnen / - / gewohnt = !live / lived / living : where
gehen / - / +gegangen = go / went / going : whither
fahren / fähr / +gefahren = go / went / going : whither
kommen / - / +gekommen = come / came / coming : whither
laufen / läuf / +gelaufen = run / ran / running : whither
schwimmen / - / +geschwommen = swim / swam / swimming : none
auf|stehen / - / +aufgestanden = get up / got up / getting up : none
an|kommen / - / +angekommen = arrive / arrived / arriving : none
ein|kaufen / - / eingekauft = shop / shopped / shopping : where
fern|sehen / sieh / ferngesehen = watch tv / watched tv / watching tv : where
"""

# modal: ich, du, er, wir, ihr, sie = english (to: an ordinary verb with 'to')
_MODALS = """
möchte möchtest möchte möchten möchtet möchten = want to
will willst will wollen wollt wollen = want to
muss musst muss müssen müsst müssen = have to
kann kannst kann können könnt können = can
darf darfst darf dürfen dürft dürfen = may
soll sollst soll sollen sollt sollen = should
"""

# when, with the tense English takes for it
_TIMES = """
jetzt = now : progressive
heute = today : progressive
heute abend = tonight : progressive
morgen = tomorrow : future
morgen abend = tomorrow evening : future
nächste woche = next week : future
am montag = on monday : future
am freitag = on friday : future
jeden tag = every day : simple
am wochenende = on the weekend : simple
im sommer = in the summer : simple
im winter = in the winter : simple
gestern = yesterday : past
gestern abend = last night : past
letzte woche = last week : past
letztes jahr = last year : past
"""

_FREQUENCIES = """
immer = always
oft = often
manchmal = sometimes
nie = never
"""

_MANNERS = """
allein = alone : where whither
zusammen mit freunden = together with friends : where whither
mit dem bus = by bus : whither
mit dem zug = by train : whither
mit dem auto = by car : whither
"""

_PLACES = """
zu hause = at home : where
in der stadt = in the city : where
in der schule = at school : where
im park = in the park : where
im garten = in the garden : where
im büro = in the office : where
in berlin = in berlin : where
im hotel = in the hotel : where
nach hause = home : whither
nach berlin = to berlin : whither
in die stadt = to the city : whither
in die schule = to school : whither
in den park = to the park : whither
zum bahnhof = to the station : whither
zum arzt = to the doctor : whither
ins kino = to the cinema : whither
ins büro = to the office : whither
"""

_FEELINGS = """
müde = tired
krank = ill
glücklich = happy
hungrig = hungry
traurig = sad
durstig = thirsty
fertig = ready
"""

_NUMBERS = """
zwei = two
drei = three
vier = four
fünf = five
sechs = six
sieben = seven
acht = eight
neun = nine
zehn = ten
zwölf = twelve
zwanzig = twenty
dreißig = thirty
"""

_THINKING = """
glaube glaubst glaubt glauben glaubt glauben = think / thinks
weiß weißt weiß wissen wisst wissen = know / knows
hoffe hoffst hofft hoffen hofft hoffen = hope / hopes
denke denkst denkt denken denkt denken = think / thinks
"""


@dataclass(frozen=True)
class Noun:
    german: str
    plural: str | None
    gender: str  # m, f, n
    english: str
    english_plural: str | None  # None: no plural in English, so only the singular is used
    kinds: frozenset[str]
    weak: bool  # der junge, den jungen

    @property
    def mass(self) -> bool:
        """Not counted: 'water', 'any water', never 'a water'."""
        return self.english_plural is None

    def form(self, case: str, number: str) -> str:
        if number == "plural":
            assert self.plural is not None
            return self.plural + ("n" if case == "dative" and self.plural[-1] not in "ns" else "")
        if self.weak and case != "nominative":
            return self.german + ("n" if self.german[-1] in "er" else "en")
        return self.german


@dataclass(frozen=True)
class Adjective:
    german: str
    english: str
    kinds: frozenset[str]

    def form(self, ending: str) -> str:
        stem = "teur" if self.german == "teuer" else self.german
        return stem + ending


@dataclass(frozen=True)
class Verb:
    prefix: str  # of a separable verb, else ''
    german: str  # infinitive without the prefix
    changed: str | None  # stem of du and er where the vowel changes
    participle: str
    auxiliary: str  # haben or sein
    english: str
    past: str
    ing: str
    state: bool  # "i know", never "i am knowing"
    event: bool  # told in the past only
    kinds: frozenset[str]

    def present(self, person: int) -> str:
        """The finite form without prefix; persons 0..5 are ich, du, er, wir, ihr, sie."""
        stem = self.german.removesuffix("en")
        soft = "e" if stem[-1] in "td" else ""  # du arbeitest
        if person in (1, 2) and self.changed:
            stem, soft = self.changed, ""  # du lädst
        s = "" if stem[-1] in "sßz" else "s"  # du liest, du tanzt
        return stem + ("e", soft + s + "t", soft + "t", "en", self._ihr(), "en")[person]

    def _ihr(self) -> str:
        return "et" if self.german.removesuffix("en")[-1] in "td" else "t"


def _lines(table: str) -> list[tuple[list[str], list[str], frozenset[str]]]:
    """Each line as (german fields, english fields, kinds)."""
    rows = []
    for line in table.strip().splitlines():
        words, _, kinds = line.partition(" : ")
        german, _, english = words.partition(" = ")
        rows.append((german.split(" / "), english.split(" / "), frozenset(kinds.split())))
    return rows


def _noun(german: list[str], english: list[str], kinds: frozenset[str]) -> Noun:
    article, word = german[0].removeprefix("*").split()
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    plural = None if german[1] == "-" else german[1]
    english_plural = None if english[1] == "-" else english[1]
    return Noun(word, plural, gender, english[0], english_plural, kinds, german[0].startswith("*"))


def _verb(german: list[str], english: list[str], kinds: frozenset[str]) -> Verb:
    prefix, _, infinitive = german[0].rpartition("|")
    return Verb(
        prefix=prefix,
        german=infinitive,
        changed=None if german[1] == "-" else german[1],
        participle=german[2].removeprefix("+"),
        auxiliary="sein" if german[2].startswith("+") else "haben",
        english=english[0].lstrip("!?"),
        past=english[1],
        ing=english[2],
        state=english[0].startswith("!"),
        event=english[0].startswith("?"),
        kinds=kinds,
    )


@dataclass(frozen=True)
class Phrase:
    """German words with their English ones, and what they go with."""

    german: str
    english: str
    kinds: frozenset[str] = frozenset()


def _phrases(table: str) -> list[Phrase]:
    return [Phrase(german[0], english[0], kinds) for german, english, kinds in _lines(table)]


NOUNS = [_noun(*line) for line in _lines(_NOUNS)]
ADJECTIVES = [Adjective(german[0], english[0], kinds) for german, english, kinds in _lines(_ADJECTIVES)]
TRANSITIVE = [_verb(*line) for line in _lines(_TRANSITIVE)]
GIVING = [_verb(*line) for line in _lines(_GIVING)]
INTRANSITIVE = [_verb(*line) for line in _lines(_INTRANSITIVE)]
MODALS = _phrases(_MODALS)
TIMES = _phrases(_TIMES)
FREQUENCIES = _phrases(_FREQUENCIES)
MANNERS = _phrases(_MANNERS)
PLACES = _phrases(_PLACES)
FEELINGS = _phrases(_FEELINGS)
NUMBERS = _phrases(_NUMBERS)
THINKING = [Phrase(german[0], "/".join(english)) for german, english, _ in _lines(_THINKING)]
