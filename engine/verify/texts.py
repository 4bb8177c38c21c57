"""Texts that a model is verified with where none are given: short and long ones, of several subjects, scripts and kinds.

Groups of related sentences, so that a search among them has near and far answers; the last texts are longer than one tile of any
kernel and, for small models, longer than the model takes.
"""

from __future__ import annotations

_SENTENCES = """\
The cat sleeps on the warm windowsill.
A kitten is napping in the sun by the window.
Dogs need a long walk twice a day.
My neighbour's puppy barks at the postman.
Gravity pulls every mass towards every other mass.
An apple falls because the earth attracts it.
Planets move around the sun on ellipses.
The moon causes the tides of the sea.
Light travels about 300,000 kilometres in a second.
How far away is the nearest star?
Bread rises because yeast makes carbon dioxide.
Knead the dough for ten minutes and let it rest for an hour.
Add a pinch of salt and half a cup of olive oil.
Which flour is best for pizza?
The soup tastes better on the second day.
Interest rates rose by a quarter of a percent.
The central bank wants to bring down inflation.
Shares of chip makers fell after the report.
Please send the invoice before the end of the month.
How do I cancel my subscription?
Your order was shipped on Tuesday and arrives within three days.
I want to return the shoes; they are too small.
The parcel came damaged and the box was open.
The patient complains of a headache and a stiff neck.
Aspirin thins the blood and lowers fever.
Wash your hands before you touch the wound.
A vaccine trains the immune system without the disease.
What are the side effects of ibuprofen?
The court dismissed the appeal for lack of evidence.
The tenant may end the lease with three months' notice.
Both parties keep the contents of this contract confidential.
A lock keeps two threads from changing the same value at once.
The process ran out of memory and was killed by the kernel.
How do I read a file line by line in Python?
for line in open(path): print(line.rstrip())
SELECT name, COUNT(*) FROM orders GROUP BY name ORDER BY 2 DESC;
TypeError: unsupported operand type(s) for +: 'int' and 'str'
An index makes a query fast and an insert slow.
https://example.org/search?q=vector+database&page=2
The train to the airport leaves every twenty minutes.
Which platform does the night train leave from?
We hiked along the ridge until the fog came in.
The old bridge over the river is closed for repairs.
Tickets for the concert were sold out in an hour.
She plays the violin in the city orchestra.
The striker scored twice in the second half.
Our team lost the final on penalties.
The novel tells of three sisters in a small town.
Who wrote the play about the prince of Denmark?
Paint dries slowly when the air is damp.
Die Katze schläft auf der warmen Fensterbank.
Wie kündige ich mein Abonnement?
Le chat dort au soleil, près de la fenêtre.
Comment lire un fichier ligne par ligne en Python ?
El gato duerme al sol junto a la ventana.
¿De qué andén sale el tren nocturno?
Кошка спит на тёплом подоконнике.
猫が日当たりのいい窓辺で寝ている。
这只猫在温暖的窗台上睡觉。
고양이가 따뜻한 창가에서 자고 있다.
القطة نائمة على حافة النافذة الدافئة
Yes.
42
3.14159 2.71828 1.41421
😀 thanks!!! 👍
""".splitlines()

TEXTS = (*_SENTENCES, " ".join(_SENTENCES[:12]), " ".join(_SENTENCES[10:40]), " ".join(_SENTENCES))
